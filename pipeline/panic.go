package pipeline

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// A PanicError is a panic, or a [runtime.Goexit], of a callback that a strategy ran in a goroutine of its own. It matches
// [ErrAborted]. No execution returns it: the strategy goes on with the panic in the caller's goroutine.
type PanicError struct {
	Value any    // the value of the panic; nil for a Goexit
	Stack []byte // the stack of the goroutine that panicked
}

// Recovered returns a PanicError of what [recover] returned, in a deferred function of code that did not return.
func Recovered(value any) *PanicError { return &PanicError{Value: value, Stack: debug.Stack()} }

// Error returns a text with the Value.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "pipeline: the callback called runtime.Goexit"
	}
	return fmt.Sprintf("pipeline: the callback panicked: %v", e.Value)
}

// Is reports whether target is [ErrAborted].
func (e *PanicError) Is(target error) bool { return target == ErrAborted }

// Unwrap returns the Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Continue panics with the Value, or calls [runtime.Goexit].
func (e *PanicError) Continue() {
	if e.Value == nil {
		runtime.Goexit()
	}
	panic(e.Value)
}
