package filewatch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/weir-go/weir/registry"
)

// The waits between two attempts to load the same content double from firstRetry to lastRetry.
const (
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
)

// A retry is the time at which refused content is tried again. The zero value means never.
type retry struct {
	at   time.Time
	wait time.Duration
}

func (r retry) due() bool { return r.wait > 0 && !time.Now().Before(r.at) }

// after returns the next retry after an attempt with that result.
func (r retry) after(err error) retry {
	if _, permanent := errors.AsType[*permanentError](err); permanent || err == nil {
		return retry{}
	}
	wait := firstRetry
	if r.wait > 0 {
		wait = min(2*r.wait, lastRetry)
	}
	return retry{at: time.Now().Add(wait), wait: wait}
}

// Permanent wraps an error of [Options.Load] that the same content would cause again, such as a syntax error. Only
// Reload and a signal try the same content again. The text of the error stays the same.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// errGoexit is the error of a Load that has called [runtime.Goexit].
var errGoexit = errors.New("reload: a function has called runtime.Goexit while the file was loaded")

// callLoad calls Load, and then done with the error of Load. If Load has panicked, the error is a [registry.PanicError].
// If Load has called [runtime.Goexit], it is errGoexit; callLoad does not return then, but done is called.
func (w *Watcher) callLoad(ctx context.Context, content []byte, done func(err error, returned bool)) {
	err, returned := errGoexit, false
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reload: loading the file: %w", &registry.PanicError{Value: p, Stack: debug.Stack()})
		}
		done(err, returned)
	}()
	err = w.options.Load(ctx, content)
	returned = true
}

// sameText reports whether two errors have the same text, or both are nil.
func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}
