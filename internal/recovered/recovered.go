// Package recovered calls functions of the program so that weir goes on after their panics.
//
// On the caller's goroutine a panic of a callback is up to the caller: net/http recovers that of a handler, for example.
// On a goroutine that weir started nothing recovers it, and the program would end because an IdleDuration dereferences
// nil. So every function of the program that weir calls on a goroutine of its own is called through [Call], and functions
// that release something through [Finish], so that the others are called, too.
package recovered

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"
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

// Error calls f and returns its error, or its panic as an error.
func Error(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

var errLeft = errors.New("it left its goroutine")

// Finish calls f. It calls failed if f returns an error, panics or calls [runtime.Goexit].
func Finish(f func() error, failed func(error)) {
	err := errLeft
	defer func() {
		if err != nil {
			failed(err)
		}
	}()
	err = Error(f)
}

// CloseAll closes those of all that have a Close method, in order, each of them even if the Close of another one panics
// or calls [runtime.Goexit]. It calls failed with the index of each one that fails.
func CloseAll[T any](all []T, failed func(i int, err error)) {
	for i, each := range slices.Backward(all) { // deferred, so the first one is closed first
		if c, ok := any(each).(io.Closer); ok {
			defer Finish(c.Close, func(err error) { failed(i, err) })
		}
	}
}

// Overdue logs at the level Error that a call of hook has not returned within that time.
func Overdue(hook string, within time.Duration) {
	defer func() { _ = recover() }()
	slog.LogAttrs(context.Background(), slog.LevelError, "weir: a call has not returned",
		slog.String("hook", hook), slog.Duration("within", within))
}

// Report logs a panic that was recovered elsewhere, as Call does. A log handler that panics is ignored:
// nothing is left to report it to.
func Report(hook string, value any, stack []byte) {
	defer func() { _ = recover() }()
	slog.LogAttrs(context.Background(), slog.LevelError, "weir: recovered a panic",
		slog.String("hook", hook), slog.String("panic", fmt.Sprint(value)), slog.String("stack", string(stack)))
}
