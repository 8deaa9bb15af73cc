// Package recovered runs the program's functions on goroutines that weir started.
//
// A panic in a callback ends the process unless something on the same goroutine recovers it. On the
// caller's goroutine that is up to the caller: net/http recovers a handler's panic, for example, and a
// test reports it. On a timer's goroutine nothing does, and a program would end at night because a
// user's IdleDuration dereferenced nil. So every function of the program that weir calls on a goroutine
// of its own is called through [Call].
package recovered

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
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
