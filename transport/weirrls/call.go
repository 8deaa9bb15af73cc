package weirrls

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/internal/recovered"
)

// A call is what limits have to know of their request.
type call struct {
	ctx     context.Context
	asking  context.Context // of questions to limits: see beforeDeadline
	options *ServiceOptions
	now     int64 // in seconds since 1970
}

func newCall(ctx context.Context, o *ServiceOptions) call {
	return call{ctx: ctx, asking: beforeDeadline(ctx), options: o, now: time.Now().Unix()}
}

// beforeDeadline returns the context for asking limits. If the request has a deadline, as those of Envoy have, a quarter of
// the time is for the way of the answer: a store that has not answered by then is too late, and its outage policy decides.
// Without that, a store that is silent would cost all answers until it counts as away.
func beforeDeadline(ctx context.Context) context.Context {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx
	}
	return answerby.With(ctx, deadline.Add(-time.Until(deadline)/4))
}

var (
	// errLate is the error of a store that has not answered in time.
	errLate = errors.New("weirrls: the store has not answered in time")
	// errGoexit is the error of a limiter that has ended its goroutine.
	errGoexit = errors.New("weirrls: the limiter has ended its goroutine")
)

// inTime returns the result of f, which goes on if it has not returned when the request is to be answered: then the error
// is errLate. The context of f does not end with the request.
func inTime[T any](c *call, f func(ctx context.Context) (T, error)) (v T, err error) {
	ctx := context.WithoutCancel(c.ctx)
	by, bounded := answerby.Of(c.asking)
	if !bounded {
		defer rescue(&err)
		return f(ctx)
	}
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: errGoexit}
		defer func() { done <- r }()
		defer rescue(&r.err)
		r.v, r.err = f(ctx)
	}()
	late := time.NewTimer(time.Until(by))
	defer late.Stop()
	select {
	case r := <-done:
		return r.v, r.err
	case <-late.C:
		return v, errLate
	}
}

// rescue is deferred. It recovers a panic of a limiter, logs it, and makes it the error.
func rescue(err *error) {
	if p := recover(); p != nil {
		recovered.Report("weirrls: limiter", p, debug.Stack())
		*err = fmt.Errorf("weirrls: the limiter has panicked: %v", p)
	}
}
