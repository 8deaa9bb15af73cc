package weirfailsafe

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// An execution is one call of Execute. The executor may run several attempts, at
// once, and after the execution has ended.
type execution[R any] struct {
	next   pipeline.Next
	cancel context.CancelCauseFunc
	none   atomic.Bool // an attempt succeeded without a value

	mu      sync.Mutex
	ended   bool
	aborted *PanicError // the first attempt that did not return
	problem error       // the first that returned what it must not
}

// attempt is what the executor runs.
func (e *execution[R]) attempt(exec failsafe.Execution[R]) (R, error) {
	ctx := exec.Context()
	var a attempt[R]
	if ctx.Err() != nil { // policies run their callback with such a context, too
		return a.value, pipeline.ContextError(ctx)
	}
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		e.run(ctx, &a)
	}()
	<-returned
	return a.value, a.err
}

// An attempt is what came of one.
type attempt[R any] struct {
	value R
	err   error
}

// run runs the rest of the pipeline. It is on a goroutine of its own because a
// Goexit cannot be stopped: the executor must go on, and end, without it.
func (e *execution[R]) run(ctx context.Context, a *attempt[R]) {
	returned := false
	defer func() {
		if !returned {
			p := &PanicError{Value: recover(), Stack: debug.Stack()}
			a.err = p
			e.abort(ctx, p)
		}
	}()
	value, err := e.next.Run(ctx)
	returned = true
	a.err = err
	if v, ok := value.(R); ok {
		a.value = v
	} else if value != nil {
		a.err = e.mismatch(value, err)
	} else if err == nil {
		e.none.Store(true)
	}
}

// abort remembers a panic, and lets the policies come to an end: none of them is
// to try again.
func (e *execution[R]) abort(ctx context.Context, p *PanicError) {
	e.mu.Lock()
	if !e.ended && e.aborted == nil {
		e.aborted = p
	}
	e.mu.Unlock()
	defer e.cancel(p)
	// This goroutine is the bridge's: a panic of the listener would end the process.
	// The caller gets the callback's panic.
	recovered.Call("failsafe: Listener", func() {
		e.next.Report(ctx, pipeline.Event{Name: EventPanic, Severity: pipeline.SeverityCritical, Err: p})
	})
}

// mismatch does the same for a value that the policies cannot be shown. Where it
// came with an error, that is the matter, and the value is dropped.
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

// result is what the executor's value is to the pipeline: none if that is all the
// callback had, and no zero R, which would be a result of a type that strategies
// outside may not know.
func (e *execution[R]) result(value R) any {
	if e.none.Load() {
		if v := reflect.ValueOf(value); !v.IsValid() || v.IsZero() {
			return nil
		}
	}
	return value
}

// finish lets the panic of an attempt go on from here, where the caller can catch
// it. What else must reach the caller, it returns.
func (e *execution[R]) finish() error {
	e.mu.Lock()
	e.ended = true
	aborted, problem := e.aborted, e.problem
	e.mu.Unlock()
	if aborted == nil {
		return problem
	}
	if aborted.Value == nil {
		runtime.Goexit()
	}
	panic(aborted.Value)
}

// PanicError is what policies are told of a callback that panicked or called
// [runtime.Goexit]. It [errors.Is] [pipeline.ErrAborted]. No execution returns it.
type PanicError struct {
	Value any    // what the callback panicked with; nil for a Goexit
	Stack []byte // where
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "failsafe: the callback called runtime.Goexit"
	}
	return fmt.Sprintf("failsafe: the callback panicked: %v", e.Value)
}

// Is tells whether target is [pipeline.ErrAborted].
func (e *PanicError) Is(target error) bool { return target == pipeline.ErrAborted }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
