package handlerio

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// A timedBody is a request body whose Read fails after the time of the handler is over. If a Read is waiting for the
// client at that moment, it fails then.
type timedBody struct {
	io.ReadCloser
	inner  http.ResponseWriter
	client *ClientContext
	cutoff *cutoff

	// disturbed: the body has ended, although expire was called. net/http already
	// reads the next request, which would fail with the deadline that expire sets, so
	// the connection must be closed.
	disturbed atomic.Bool
}

func newTimedBody(r *http.Request, inner http.ResponseWriter, until time.Time, client *ClientContext) *timedBody {
	b := &timedBody{ReadCloser: r.Body, inner: inner, client: client}
	b.cutoff = newCutoff(until, b.expire)
	return b
}

func (b *timedBody) Read(p []byte) (n int, err error) {
	if err := b.cutoff.enter(); err != nil {
		return 0, err
	}
	defer func() {
		if b.cutoff.leave(err == io.EOF) { //nolint:errorlint // a wrapped EOF is not the end
			b.disturbed.Store(true)
		}
	}()
	return b.ReadCloser.Read(p)
}

// Close reads some of what is left, as the body of net/http does.
func (b *timedBody) Close() error {
	b.cutoff.enterLate()
	closed := false
	defer func() {
		if b.cutoff.leave(closed) {
			b.disturbed.Store(true)
		}
	}()
	err := b.ReadCloser.Close()
	closed = true
	return err
}

// expire makes reading fail. It first marks the ClientContext of this handler and of all handlers further out: without
// the mark they would end as if the client had hung up.
func (b *timedBody) expire() {
	for c := b.client; c != nil; c = c.outer {
		c.expired.Store(true)
	}
	_ = http.NewResponseController(b.inner).SetReadDeadline(pastDeadline) // if it cannot be set, the Read waits
}

// ended reports whether the body was read to its end, or closed.
func (b *timedBody) ended() bool {
	b.cutoff.mu.Lock()
	defer b.cutoff.mu.Unlock()
	return b.cutoff.closed
}
