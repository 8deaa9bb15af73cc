package weirfailsafe

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go"

	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// An execution is one call of Execute. The executor can run several attempts, at once, and after the execution has ended.
type execution[R any] struct {
	next   pipeline.Next
	cancel context.CancelCauseFunc
	none   atomic.Bool // an attempt succeeded without a value

	mu      sync.Mutex
	ended   bool
	aborted *pipeline.PanicError // of the first attempt that did not return
	problem error                // of the first attempt whose result is not an R
	latest  any                  // the result of the attempt that ended last
}

// attempt is the callback of the executor.
func (e *execution[R]) attempt(exec failsafe.Execution[R]) (R, error) {
	ctx := exec.Context()
	var a attempt[R]
	if ctx.Err() != nil { // policies of failsafe-go run their callback even then
		return a.value, pipeline.ContextError(ctx)
	}
	e.mu.Lock()
	latest := e.latest
	e.mu.Unlock()
	holding.Release(ctx, latest) // a policy handles it as a failure
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		e.run(ctx, &a)
	}()
	<-returned
	return a.value, a.err
}

// An attempt is the outcome of an attempt.
type attempt[R any] struct {
	value R
	err   error
}

// run runs next. It is called in a goroutine of its own, because a Goexit cannot be stopped: the executor must go on, and
// end, without it.
func (e *execution[R]) run(ctx context.Context, a *attempt[R]) {
	returned := false
	defer func() {
		if !returned {
			p := pipeline.Recovered(recover())
			a.err = p
			e.abort(ctx, p)
		}
	}()
	value, err := e.next.Run(ctx)
	returned = true
	a.err = err
	e.mu.Lock()
	e.latest = value
	e.mu.Unlock()
	if v, ok := value.(R); ok {
		a.value = v
	} else if value != nil {
		a.err = e.mismatch(value, err)
	} else if err == nil {
		e.none.Store(true)
	}
}

// abort keeps a panic for finish, and cancels the execution, so that no policy makes another attempt.
func (e *execution[R]) abort(ctx context.Context, p *pipeline.PanicError) {
	e.mu.Lock()
	if !e.ended && e.aborted == nil {
		e.aborted = p
	}
	e.mu.Unlock()
	defer e.cancel(p)
	// This is a goroutine of this package: a panic of the listener would end the process. The caller gets the panic of
	// the callback.
	recovered.Call("weirfailsafe: Listener", func() {
		e.next.Report(ctx, pipeline.Event{Name: EventPanic, Severity: pipeline.SeverityCritical, Err: p})
	})
}

// mismatch is abort for a value that is not an R. It returns the error of the attempt. If the value came with an error,
// that is the error of the attempt, and the value is dropped.
func (e *execution[R]) mismatch(value any, err error) error {
	if err != nil {
		return err
	}
	err = fmt.Errorf("%w: %v: policies for %v, got %T", pipeline.ErrResultType, e.next.Source(), reflect.TypeFor[R](), value)
	e.mu.Lock()
	if e.problem == nil {
		e.problem = err
	}
	e.mu.Unlock()
	e.cancel(err)
	return err
}

// result returns the value of the executor as the pipeline's. If the callback returned no value, it is nil rather than the
// zero R, which would be a result of a type that strategies outside need not know.
func (e *execution[R]) result(value R) any {
	if e.none.Load() {
		if v := reflect.ValueOf(value); !v.IsValid() || v.IsZero() {
			return nil
		}
	}
	return value
}

// finish continues the panic or Goexit of an attempt in the caller's goroutine. It returns the problem of a result that is
// not an R.
func (e *execution[R]) finish() error {
	e.mu.Lock()
	e.ended = true
	aborted, problem := e.aborted, e.problem
	e.mu.Unlock()
	if aborted != nil {
		aborted.Continue()
	}
	return problem
}
