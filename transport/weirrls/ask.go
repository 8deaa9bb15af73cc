package weirrls

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
)

// maxConcurrent bounds the goroutines that ask limits for one request, however many descriptors it has.
const maxConcurrent = 16

// errGoexit is the error of a limiter that has ended its goroutine.
var errGoexit = errors.New("weirrls: the limiter has ended its goroutine")

// ask asks the limits. Those in this process are asked in order. If two or more can take time, such as those of a store,
// they are asked at once, afterwards: see rejected.
func (d *decision) ask() {
	slow := 0
	for i := range d.checks {
		if c := &d.checks[i]; d.takesTime(c) {
			slow++
		} else {
			d.askNow(c)
		}
	}
	if slow == 0 {
		return
	}
	d.asking = beforeDeadline(d.ctx)
	d.rejected = d.rejectedInProcess()
	if slow > 1 {
		d.concurrently(d.takesTime, d.askNow)
	}
	for i := range d.checks {
		if c := &d.checks[i]; !c.asked {
			d.askNow(c)
		}
	}
}

// beforeDeadline returns the context for asking limits of a store. If the request has a deadline, as those of Envoy have,
// a quarter of the time is for the way of the answer: a store that has not answered by then is too late, and its outage
// policy decides. Without that, a store that is silent would cost all answers until it counts as away.
func beforeDeadline(ctx context.Context) context.Context {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx
	}
	return answerby.With(ctx, deadline.Add(-time.Until(deadline)/4))
}

// inTime returns the result of f, which goes on also after the moment at which a request with that context is to be
// answered. If f has not returned by then, ok is false and err is nil. f must not use the decision.
func inTime[T any](asking context.Context, f func() (T, error)) (v T, ok bool, err error) {
	by, bounded := answerby.Of(asking)
	if !bounded {
		v, err = f()
		return v, err == nil, err
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
		r.v, r.err = f()
	}()
	late := time.NewTimer(time.Until(by))
	defer late.Stop()
	select {
	case r := <-done:
		return r.v, r.err == nil, r.err
	case <-late.C:
		return v, false, nil
	}
}

// rejectedInProcess reports whether a limit that was asked rejects the request by itself.
func (d *decision) rejectedInProcess() bool {
	if d.service.options.Shadow {
		return false
	}
	for i := range d.checks {
		if c := &d.checks[i]; c.over() && !c.limit.Shadow && !d.isQuota(c) {
			return true
		}
	}
	return false
}

// takesTime reports whether the answer about c can take time.
func (d *decision) takesTime(c *check) bool {
	switch c.kind {
	case exact:
		return c.limit.remote
	case window, override:
		return d.service.options.Counters.shared
	default:
		return false
	}
}

// concurrently calls f with each check for which include returns true, on several goroutines. It calls f for the checks of
// one counter in order, because their sums depend on the order. If f ends its goroutine, some checks can be left out.
func (d *decision) concurrently(include func(*check) bool, f func(*check)) {
	groups := make(map[counterOf][]*check)
	for i := range d.checks {
		if c := &d.checks[i]; include(c) {
			of := d.counterOf(c)
			groups[of] = append(groups[of], c)
		}
	}
	var wg sync.WaitGroup
	running := make(chan struct{}, maxConcurrent)
	for _, checks := range groups {
		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			for _, c := range checks {
				f(c)
			}
		})
	}
	wg.Wait()
}

// counterOf tells the counters of checks apart.
type counterOf struct {
	limit *limit // of an exact check
	key   string
	span  timeSpan
}

func (d *decision) counterOf(c *check) counterOf {
	if c.kind == exact {
		return counterOf{limit: c.limit, key: c.key}
	}
	return counterOf{key: c.key, span: c.span}
}

// askNow asks the limit of c, and sets its answer. A panic of the limiter is the error of c, and so is a Goexit on a
// goroutine of concurrently.
func (d *decision) askNow(c *check) {
	if c.kind == noLimit || c.kind == unlimited {
		return
	}
	var began time.Duration
	if d.measuring {
		began = clock.Now()
	}
	c.asked, c.err = true, errGoexit // unless it returns
	c.answer = d.judge(c)
	c.err = d.askLimit(c)
	if d.measuring {
		c.took = clock.Now() - began
	}
	c.answer = d.judge(c)
}

// askLimit asks the limit of c.
func (d *decision) askLimit(c *check) (err error) {
	defer rescue(&err)
	switch {
	case c.kind != exact:
		return d.count(c)
	case c.negative:
		return d.giveBack(c)
	case d.rejected && c.limit.OnOverrun == OverrunNothing && c.limit.charges():
		return d.wouldGrant(c)
	default:
		return d.acquire(d.asking, c)
	}
}

// rescue is deferred. It recovers a panic of a limiter, logs it, and makes it the error.
func rescue(err *error) {
	if p := recover(); p != nil {
		recovered.Report("weirrls: limiter", p, debug.Stack())
		*err = fmt.Errorf("weirrls: the limiter has panicked: %v", p)
	}
}

// judge returns the answer of the limit of c, which was asked.
func (d *decision) judge(c *check) answer {
	switch {
	case c.negative && c.err != nil:
		return failedOpen // the request asks for nothing
	case c.negative:
		return within
	case c.refused: // also if there was an error afterwards
		return overLimit
	case c.err != nil, c.kind == exact && undecided(c.lease):
		return d.withoutDecision(c)
	default:
		return within
	}
}

// withoutDecision returns the answer of a limit that could not decide.
func (d *decision) withoutDecision(c *check) answer {
	if c.limit.FailOpen || c.kind != exact && d.service.options.CountersFailOpen {
		return failedOpen
	}
	return failed
}

// undecided reports whether a lease says nothing about the quota: the store is away, or the limiter is closed. A rejection
// because of too many keys is a decision: if FailOpen applied to it, a client could pass every limit by making up keys.
func undecided(lease limiter.Lease) bool {
	if lease.Acquired() {
		return false
	}
	reason := lease.Reason()
	return reason == limiter.ReasonUnavailable || reason == limiter.ReasonClosed
}

func isUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
