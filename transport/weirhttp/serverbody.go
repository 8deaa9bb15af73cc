package weirhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A shield tells a client that has gone from a deadline of ours. net/http ends a
// request's context when reading from the connection fails, whatever the reason;
// over HTTP/1 a read deadline that passes would look to strategies as if the client
// had hung up, and a timeout would not know that it was its own.
type shield struct {
	expired atomic.Bool // a deadline of ours has passed on the connection
	stop    func()
}

// shielded returns the request's context without the ends that a deadline of ours
// brings about. Requests without a body have none.
func shielded(r *http.Request) (context.Context, *shield) {
	parent := r.Context()
	s := &shield{stop: func() {}}
	if !hasBody(r) {
		return parent, s
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	forget := func() {}
	until, ends := parent.Deadline()
	if ends {
		ctx, forget = context.WithDeadline(ctx, until)
	}
	unhook := context.AfterFunc(parent, func() {
		if s.expired.Load() || ends && errors.Is(parent.Err(), context.DeadlineExceeded) {
			return // ours, or one that ctx has as well
		}
		cancel(context.Cause(parent))
	})
	s.stop = func() {
		unhook()
		forget()
		cancel(nil)
	}
	return ctx, s
}

// A timedBody fails from some time on, also while a Read waits for the client.
type timedBody struct {
	io.ReadCloser
	inner  http.ResponseWriter
	shield *shield
	around *timedBody // that of a handler further out, with its own time; or nil
	cutoff *cutoff

	// spoilt: the body has ended just when the deadline was set. The connection, on
	// which net/http reads on, may not have another request.
	spoilt atomic.Bool
}

type bodyKey struct{}

// bodyOf returns the innermost timedBody of the request, or nil.
func bodyOf(ctx context.Context) *timedBody {
	b, _ := ctx.Value(bodyKey{}).(*timedBody)
	return b
}

func newTimedBody(r *http.Request, inner http.ResponseWriter, until time.Time, s *shield) *timedBody {
	b := &timedBody{ReadCloser: r.Body, inner: inner, shield: s, around: bodyOf(r.Context())}
	b.cutoff = newCutoff(until, b.expire)
	return b
}

func (b *timedBody) Read(p []byte) (n int, err error) {
	if err := b.cutoff.enter(); err != nil {
		return 0, err
	}
	defer func() {
		if b.cutoff.leave(err == io.EOF) { //nolint:errorlint // it is the end only when it is bare
			b.spoilt.Store(true)
		}
	}()
	return b.ReadCloser.Read(p)
}

// Close reads what is left, or part of it.
func (b *timedBody) Close() error {
	b.cutoff.enterLate()
	closed := false
	defer func() {
		if b.cutoff.leave(closed) {
			b.spoilt.Store(true)
		}
	}()
	err := b.ReadCloser.Close()
	closed = true
	return err
}

// expire makes reading fail, and tells everybody who might take that for the client's
// going.
func (b *timedBody) expire() {
	for around := b; around != nil; around = around.around {
		around.shield.expired.Store(true)
	}
	_ = http.NewResponseController(b.inner).SetReadDeadline(aLongTimeAgo) // where it cannot be set, the Read waits
}

// ended reports whether the body was read to its end, or closed.
func (b *timedBody) ended() bool {
	b.cutoff.mu.Lock()
	defer b.cutoff.mu.Unlock()
	return b.cutoff.closed
}
