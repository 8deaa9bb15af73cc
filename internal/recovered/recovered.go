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

// A Panic is the error of a function that has panicked.
type Panic struct {
	Value any
	Stack []byte
}

// Error returns the value of the panic.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// Unwrap returns Value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

var errLeft = errors.New("it left its goroutine")

// Error calls f, waits for it and returns its error. A panic and a [runtime.Goexit] of f become errors: f runs on a goroutine of
// its own, so that Goexit does not end the caller's.
func Error(f func() error) error {
	err := errLeft
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = &Panic{p, debug.Stack()}
			}
		}()
		err = f()
	}()
	<-done
	return err
}

// Hook calls f through [Error], and logs a panic or a [runtime.Goexit] as [Call] does.
func Hook(hook string, f func()) {
	err := Error(func() error { f(); return nil })
	if p, ok := errors.AsType[*Panic](err); ok {
		Report(hook, p.Value, p.Stack)
	} else if err != nil {
		Report(hook, err, nil)
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

// Report logs a panic that was recovered elsewhere, as Call does. A log handler that panics is ignored:
// nothing is left to report it to.
func Report(hook string, value any, stack []byte) {
	defer func() { _ = recover() }()
	slog.LogAttrs(context.Background(), slog.LevelError, "weir: recovered a panic",
		slog.String("hook", hook), slog.String("panic", fmt.Sprint(value)), slog.String("stack", string(stack)))
}
