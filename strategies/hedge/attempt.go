package hedge

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// An outcome is the outcome of one attempt.
type outcome struct {
	number   int // 0 for the first attempt
	result   any
	err      error
	took     time.Duration // only if there is a listener
	panicked *PanicError   // not nil if the attempt panicked
	exited   bool          // the attempt called runtime.Goexit
}

// returned reports whether the attempt returned, as nearly all do.
func (o *outcome) returned() bool { return o.panicked == nil && !o.exited }

// deliver ends Execute in the way in which the attempt ended: it returns, panics or calls Goexit.
func (o *outcome) deliver() (any, error) {
	switch {
	case o.panicked != nil:
		panic(o.panicked.Value)
	case o.exited:
		runtime.Goexit()
	}
	return o.result, o.err
}

// dispose hands an outcome that did not win to f, if f is not nil.
func (o *outcome) dispose(f func(result any, err error)) {
	switch {
	case f == nil:
	case o.panicked != nil:
		f(nil, o.panicked)
	case o.exited:
		f(nil, pipeline.ErrAborted)
	default:
		f(o.result, o.err)
	}
}

// A PanicError is the error that [Options.Dispose] gets of an attempt that panicked and lost. No execution returns it: a
// panic that decides goes on in the goroutine of the caller.
type PanicError struct {
	Value any    // the value of the panic
	Stack []byte // the stack of the goroutine that panicked
}

// Error returns a text with the Value.
func (e *PanicError) Error() string { return fmt.Sprintf("hedge: an attempt panicked: %v", e.Value) }

// Unwrap returns the Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Attempt returns the number of an attempt from its context: 0 for the first. For any other context it also
// returns 0. A callback can use it to call another server with each attempt.
func Attempt(ctx context.Context) int {
	number, _ := ctx.Value(attemptKey{}).(int)
	return number
}

// attemptKey is the key of the number of the attempt.
type attemptKey struct{}

// withNumber returns a context whose Attempt is number.
func withNumber(ctx context.Context, number int) context.Context {
	if Attempt(ctx) == number { // the first attempt, unless this hedge is inside another
		return ctx
	}
	return context.WithValue(ctx, attemptKey{}, number) // an int below 256 becomes an any without an allocation
}

// Dispose converts dispose, which knows the type of the results, to the type of [Options.Dispose]. dispose is called
// with every result that is a T and not nil, whether it comes with an error or not.
func Dispose[T any](dispose func(T)) func(result any, err error) {
	return func(result any, _ error) {
		if v, ok := result.(T); ok && !isNilResult(v) {
			dispose(v)
		}
	}
}

// isNilResult reports whether v is nil, or an interface that holds nil. A callback that fails often returns a nil pointer,
// map or channel with its error.
func isNilResult(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}
