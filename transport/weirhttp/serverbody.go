package weirhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A shield tells a client that has gone from a deadline of ours. net/http ends a
// request's context when reading from the connection fails, whatever the reason;
// over HTTP/1 a read deadline that passes would look to strategies as if the client
// had hung up, and a timeout would not know that it was its own.
type shield struct {
	readBy atomic.Pointer[time.Time] // the read deadline that is on the connection; nil: none
	stop   func()
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
		if s.passed() || ends && errors.Is(parent.Err(), context.DeadlineExceeded) {
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

// passed tells whether the read deadline has passed.
func (s *shield) passed() bool {
	until := s.readBy.Load()
	return until != nil && time.Until(*until) <= 0
}

// A timedBody fails from some time on, also while somebody waits in Read. The
// deadline is on the connection for only as long as the body is read: when it
// passes after that, net/http takes it for the client going away.
type timedBody struct {
	io.ReadCloser
	inner  http.ResponseWriter
	until  time.Time
	usual  time.Time // the read deadline without ours: the server's, or what the handler has set; zero: none
	shield *shield
	around *timedBody // that of a handler further out, with its own deadline; or nil

	mu     sync.Mutex
	set    bool
	chosen bool // the handler has set one
	done   bool // there is nothing more to do: the connection may not be ours any more
}

type bodyKey struct{}

// bodyOf returns the innermost timedBody of the request, or nil.
func bodyOf(ctx context.Context) *timedBody {
	b, _ := ctx.Value(bodyKey{}).(*timedBody)
	return b
}

func (b *timedBody) Read(p []byte) (int, error) {
	b.limit()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { // it is the end only when it is bare
		b.unlimit()
	}
	return n, err
}

// limit sets the deadline, unless one is set that is earlier.
func (b *timedBody) limit() {
	if b.around != nil {
		b.around.limit() // first, so that it does not replace this one
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set || b.done {
		return
	}
	b.done = b.around.limits(b.until)
	if b.done {
		return
	}
	b.note(&b.until) // before it can pass
	b.set = b.setDeadline(b.until) == nil
	if !b.set { // it cannot be set: do not try every time
		b.done = true
		b.note(nil)
	}
}

// limits tells whether a deadline is set here or further out that is no later.
func (b *timedBody) limits(until time.Time) bool {
	for ; b != nil; b = b.around {
		b.mu.Lock()
		earlier := b.set && !b.done && !b.inEffect().After(until)
		b.mu.Unlock()
		if earlier {
			return true
		}
	}
	return false
}

// note tells all who might take its passing for the client's going.
func (b *timedBody) note(until *time.Time) {
	for ; b != nil; b = b.around {
		b.shield.readBy.Store(until)
	}
}

// unlimit puts back the deadline that was there before.
func (b *timedBody) unlimit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set && !b.done {
		if o := b.around.inForce(); o != nil {
			o.mu.Lock()
			by := o.inEffect()
			o.mu.Unlock()
			_ = b.setDeadline(by)
			b.note(nil)
			o.note(&by)
		} else {
			_ = b.setDeadline(b.usual)
			b.note(nil)
		}
	}
	b.done = true
}

// inForce returns the innermost body whose deadline is set, or nil.
func (b *timedBody) inForce() *timedBody {
	for ; b != nil; b = b.around {
		b.mu.Lock()
		set := b.set && !b.done
		b.mu.Unlock()
		if set {
			return b
		}
	}
	return nil
}

// inEffect is the deadline that is on the connection while this one is. Under mu.
func (b *timedBody) inEffect() time.Time {
	if b.chosen {
		return earlier(b.until, b.usual)
	}
	return b.until
}

// choose is for a handler that sets a deadline of its own: it counts if it is earlier.
func (b *timedBody) choose(t time.Time) error {
	by := t
	for o := b; o != nil; o = o.around {
		o.mu.Lock()
		if !o.done {
			o.chosen, o.set, o.usual = true, true, t
			if by = earlier(by, o.until); by.Equal(o.until) {
				o.note(&o.until)
			}
		}
		o.mu.Unlock()
	}
	return b.setDeadline(by)
}

// earlier is the earlier one of two deadlines; zero: there is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// abandon leaves the deadlines of the connection alone from now on.
func (b *timedBody) abandon() {
	b.mu.Lock()
	b.done = true
	b.mu.Unlock()
}

func (b *timedBody) setDeadline(t time.Time) error {
	return http.NewResponseController(b.inner).SetReadDeadline(t)
}

// finish leaves a deadline that has passed: the server then closes the connection
// in place of waiting for the rest of the body.
func (b *timedBody) finish() {
	if time.Until(b.until) > 0 {
		b.unlimit()
		return
	}
	b.abandon()
}
