package filewatch

import (
	"context"
	"errors"
	"runtime/debug"
	"time"
)

// The waits between two attempts to load the same content double from the one to
// the other.
const (
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
)

// load calls Load, and makes an error of a panic.
func (w *Watcher) load(ctx context.Context, content []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return w.options.Load(ctx, content)
}

// A retry is when content that was refused is tried again. The zero retry is
// never.
type retry struct {
	at   time.Time
	wait time.Duration
}

func (r retry) due() bool { return r.wait > 0 && !time.Now().Before(r.at) }

// after returns the retry that follows one that ended like that.
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
