package filewatch

import (
	"context"
	"errors"
	"runtime/debug"
	"time"
)

// The waits between two attempts to load the same content double from firstRetry to lastRetry.
const (
	firstRetry = 5 * time.Second
	lastRetry  = time.Minute
)

// load calls Load and returns a panic as an error.
func (w *Watcher) load(ctx context.Context, content []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return w.options.Load(ctx, content)
}

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
