// Package recovered calls functions of the program so that weir goes on after their panics.
//
// On the caller's goroutine a panic of a callback is up to the caller: net/http recovers that of a handler, for example.
// On a goroutine that weir started nothing recovers it, and the program would end because an IdleDuration dereferences
// nil. So every function of the program that weir calls on a goroutine of its own is called through [Call] or [Error].
package recovered

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
)

// Call calls f. If f panics, Call recovers the panic, logs it with [slog.Default] at the level Error,
// and returns false. hook names the function in the log, such as "limiter: IdleDuration".
//
// If f calls [runtime.Goexit], Call does not return: only the deferred functions of its callers run.
// Work that has to go on after f belongs in one of them, on another goroutine if it takes long.
func Call(hook string, f func()) (returned bool) {
	defer func() {
		if p := recover(); p != nil {
			Report(hook, p, debug.Stack())
		}
	}()
	f()
	return true
}

// ErrAborted is [pipeline.ErrAborted].
var ErrAborted = errors.New("pipeline: execution panicked or left its goroutine")

// A PanicError is the error of a function that has panicked or called [runtime.Goexit]: [pipeline.PanicError] and
// registry.PanicError.
type PanicError struct {
	Value any    // the value of the panic; nil for a Goexit
	Stack []byte // the stack of the goroutine; not part of the text, so that the same panic has the same text each time
}

// NewPanicError returns the error for what [recover] returned, in a deferred function of code that did not return.
func NewPanicError(value any) *PanicError { return &PanicError{Value: value, Stack: debug.Stack()} }

// Error returns a text with the Value.
func (p *PanicError) Error() string {
	if p.Value == nil {
		return "it left its goroutine"
	}
	return fmt.Sprintf("panic: %v", p.Value)
}

// Is reports whether target is [pipeline.ErrAborted].
func (p *PanicError) Is(target error) bool { return target == ErrAborted }

// Unwrap returns the Value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// ErrorType returns "panic", the name that telemetry has for it.
func (*PanicError) ErrorType() string { return "panic" }

// Continue panics with the Value, or calls [runtime.Goexit].
func (p *PanicError) Continue() {
	if p.Value == nil {
		runtime.Goexit()
	}
	panic(p.Value)
}

// Error calls f, waits for it and returns its error. A panic and a [runtime.Goexit] of f become a [PanicError]: f runs on a
// goroutine of its own, so that Goexit does not end the caller's.
func Error(f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if !returned {
				err = NewPanicError(recover())
			}
		}()
		err = f()
		returned = true
	}()
	<-done
	return err
}

// Hook calls f through [Error], and logs a panic or a [runtime.Goexit] as [Call] does.
func Hook(hook string, f func()) {
	if p, ok := errors.AsType[*PanicError](Error(func() error { f(); return nil })); ok {
		Report(hook, p.Value, p.Stack)
	}
}

// CloseAll closes those of all that have a Close method, in order. It calls failed with the index of each one that fails.
func CloseAll[T any](all []T, failed func(i int, err error)) {
	for i, each := range all {
		if c, ok := any(each).(io.Closer); ok {
			if err := Error(c.Close); err != nil {
				failed(i, err)
			}
		}
	}
}

// Report logs a panic that was recovered elsewhere, as Call does. A nil value is that of a [runtime.Goexit]. A log handler that
// panics is ignored: nothing is left to report it to.
func Report(hook string, value any, stack []byte) {
	defer func() { _ = recover() }()
	if value == nil {
		value = "runtime.Goexit"
	}
	slog.LogAttrs(context.Background(), slog.LevelError, "weir: recovered a panic",
		slog.String("hook", hook), slog.String("panic", fmt.Sprint(value)), slog.String("stack", string(stack)))
}
