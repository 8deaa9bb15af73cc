package hedge

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// An outcome is what came of one attempt.
type outcome struct {
	number  int
	result  any
	err     error
	took    time.Duration // only if somebody listens
	panicky *PanicError   // it panicked
	gone    bool          // it called runtime.Goexit
}

// returned tells whether the attempt returned, as nearly all do.
func (o *outcome) returned() bool { return o.panicky == nil && !o.gone }

// deliver goes on with o as if the attempt had run right here.
func (o *outcome) deliver() (any, error) {
	switch {
	case o.panicky != nil:
		panic(o.panicky.Value)
	case o.gone:
		runtime.Goexit()
	}
	return o.result, o.err
}

// dispose tells f of an outcome that did not win. A nil f does not want to know.
func (o *outcome) dispose(f func(result any, err error)) {
	switch {
	case f == nil:
	case o.panicky != nil:
		f(nil, o.panicky)
	case o.gone:
		f(nil, pipeline.ErrAborted)
	default:
		f(o.result, o.err)
	}
}

// A PanicError is what [Options.Dispose] is told of an attempt that panicked and
// was not the one to decide. No execution returns it: a panic that decides goes on
// in the goroutine of the caller.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // where
}

func (e *PanicError) Error() string { return fmt.Sprintf("hedge: an attempt panicked: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Attempt returns which attempt of its hedge a callback is: 0 for the first, and
// outside of any. Use it to send each to another server.
func Attempt(ctx context.Context) int {
	if n, ok := ctx.Value(numberKey{}).(*numbered); ok {
		return n.number
	}
	return 0
}

// numbered is its own value: one allocation to make, none to read.
type numbered struct {
	context.Context
	number int
}

type numberKey struct{}

func (c *numbered) Value(key any) any {
	if _, ok := key.(numberKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// withNumber returns a context whose Attempt is number.
func withNumber(ctx context.Context, number int) context.Context {
	if Attempt(ctx) == number { // the first one, unless this hedge is inside of another
		return ctx
	}
	return &numbered{ctx, number}
}

// Dispose makes a function for [Options.Dispose] of one that knows the type. It is
// called with the results that are a T, whether with an error or without, and not
// with nil.
func Dispose[T any](dispose func(T)) func(result any, err error) {
	return func(result any, _ error) {
		if v, ok := result.(T); ok && !isNilResult(v) {
			dispose(v)
		}
	}
}

// isNilResult reports whether v is nil, or an interface that holds one. A callback that fails often returns a nil
// pointer, map or channel with its error.
func isNilResult(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}
