package weirhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

const (
	// drainBytes is how much of an unwanted body is read so that its connection can be
	// used again. For longer bodies a new connection costs less.
	drainBytes = 4 << 10
	// drainTime is how long that can take.
	drainTime = 50 * time.Millisecond
)

// errDiscarded is the error after the first bytes of a buffered body.
var errDiscarded = errors.New("weirhttp: the rest of the body was discarded when the next attempt began")

// A body is the body of a response. The caller and strategies call Read and Close. The roundTrip calls buffer before another
// attempt, and discard if the caller does not get the response.
type body struct {
	lifetime
	base   io.ReadCloser // nil: there is nothing to close
	duplex bool          // it can also be written, even after Read has returned io.EOF

	reading  sync.Mutex // held while source is read
	source   io.Reader  // base, or what buffer has read of it
	buffered bool       // source is what buffer has read
}

// A duplexBody is the body of a response to an upgrade, which can also be written.
type duplexBody struct {
	*body
	io.Writer
}

// A halfCloser can end writing and go on reading, as a TCP connection can.
type halfCloser interface{ CloseWrite() error }

// A halfCloserBody is a duplexBody whose writing can end first. httputil.ReverseProxy looks for CloseWrite: without it,
// both directions of an upgraded connection end as soon as the client has sent everything.
type halfCloserBody struct {
	duplexBody
	halfCloser
}

// original returns b. Because duplexBody and halfCloserBody embed b, they have this method, too, and it returns the
// body that they embed.
func (b *body) original() *body { return b }

// wrap replaces the body of resp by b. If the body of resp is empty, it stays, and b ends at once.
func (b *body) wrap(resp *http.Response) {
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	if resp.Body == http.NoBody {
		b.end()
		return
	}
	b.base, b.source = resp.Body, resp.Body
	// The HTTP/2 client of net/http has an empty body of its own, which need not be closed.
	b.over = resp.ProtoMajor == 2 && resp.ContentLength == 0 || resp.Request != nil && resp.Request.Method == http.MethodHead
	w, ok := resp.Body.(io.Writer)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = b
		return
	}
	b.duplex = true
	if half, ok := resp.Body.(halfCloser); ok {
		resp.Body = &halfCloserBody{duplexBody{b, w}, half}
	} else {
		resp.Body = &duplexBody{b, w}
	}
}

func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	n, err := b.source.Read(p)
	if err != nil && !b.duplex {
		b.end()
	}
	return n, err
}

// Close does not wait for a Read: it ends a Read that waits for the server.
func (b *body) Close() error {
	defer b.end()
	return b.base.Close()
}

// closeUnread closes a body that the caller does not get. It ends the context of the attempt first, because the Close of some
// bodies waits for that. For the connection that makes no difference: a body that was read to its end has already freed it.
func (b *body) closeUnread() {
	b.endContext()
	_ = b.Close() // an error has no consequence
}

// hold calls release when the body has been read or closed, or when the caller's context ends, which ends the body, too,
// unless it is duplex. It returns false if there is no body to wait for.
func (b *body) hold(caller context.Context, release func()) bool {
	if b.base == nil {
		return false
	}
	if b.duplex { // net/http leaves an upgraded connection open when caller ends
		caller = context.Background()
	}
	return b.lifetime.hold(caller, release)
}

// buffer reads the first bytes of base, which can free the connection, and closes base. It keeps those bytes, because a
// strategy can still return the response: a hedge returns that of the first attempt if all fail. Most bodies of failures have
// no more. While a strategy reads the body, buffer does nothing.
func (b *body) buffer() {
	if b.base == nil || !b.reading.TryLock() {
		return
	}
	defer b.reading.Unlock()
	if b.buffered {
		return
	}
	b.buffered = true
	defer b.closeUnread()
	limit := time.AfterFunc(drainTime, func() { recovered.Call("weirhttp: closing a response's body", b.closeUnread) })
	defer limit.Stop()
	head, n := make([]byte, drainBytes), 0
	var err error
	for began := time.Now(); err == nil && n < len(head) && time.Since(began) < drainTime; {
		var m int
		m, err = b.base.Read(head[n:])
		n += m
	}
	if !errors.Is(err, io.EOF) {
		err = errDiscarded
	}
	b.source = &headReader{*bytes.NewReader(head[:n]), err}
}

// A headReader reads the first bytes of a body, and then returns err.
type headReader struct {
	bytes.Reader
	err error
}

func (r *headReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		err = r.err
	}
	return n, err
}

// discard closes the body of a response that the caller does not get. With drain, it first tries to free the connection
// for other requests.
func (b *body) discard(drain bool) {
	if b.base == nil {
		return
	}
	defer b.closeUnread()
	if drain {
		b.buffer()
	}
}

// A lifetime lasts from the header of a response until its body has been read or closed. Then the context of the attempt ends, and
// the permits that strategies hold for the response go back.
type lifetime struct {
	cancel context.CancelCauseFunc // of the attempt's context; nil: that is the caller's

	mu          sync.Mutex
	over        bool
	held        []func()    // gives back what strategies hold, inner strategies first
	stopWaiting func() bool // for the end of the caller's context
}

// hold calls release at the end, or when caller ends. It returns false if the lifetime is over.
func (l *lifetime) hold(caller context.Context, release func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	if l.held = append(l.held, release); len(l.held) == 1 {
		l.stopWaiting = context.AfterFunc(caller, func() { recovered.Call("weirhttp: releasing permits", l.end) })
	}
	return true
}

// end ends the lifetime. It can be called again.
func (l *lifetime) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	defer l.release()
	l.endContext()
}

func (l *lifetime) endContext() {
	if l.cancel != nil {
		l.cancel(context.Canceled)
	}
}

// release gives back what strategies hold. Unless the lifetime is over, strategies further out can still hold something.
func (l *lifetime) release() {
	l.mu.Lock()
	held, stop := l.held, l.stopWaiting
	l.held, l.stopWaiting = nil, nil
	l.mu.Unlock()
	if stop != nil {
		stop()
	}
	for _, release := range slices.Backward(held) {
		defer release()
	}
}
