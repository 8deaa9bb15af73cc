package weirhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
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

// A body is the body of a response. When it has been read or closed, it ends the context of its attempt, and releases the
// permits that strategies hold until then. The caller and strategies call Read and Close. The exchange calls buffer when
// another attempt begins, so that a strategy can still read the first bytes, and discard for a response that the caller does
// not get.
type body struct {
	base   io.ReadCloser   // nil: there is nothing to close
	ctx    *attemptContext // nil: there is nothing to end
	duplex bool            // it can also be written, even after Read has returned io.EOF

	closed  atomic.Bool
	reading sync.Mutex // held while base is read
	// Under reading:
	buffered bool   // base is closed, and Read returns head and then headErr
	head     []byte // what is left of the first bytes
	headErr  error

	holding sync.Mutex
	// Under holding:
	over        bool        // the body has been read or closed, or there is none
	release     func()      // gives back what strategies hold until then; nil: nothing
	stopWaiting func() bool // ends the wait for the end of the caller's context
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

// wrap replaces the body of resp by b. If the body of resp is empty, it stays, and ctx ends at once.
func (b *body) wrap(resp *http.Response, ctx *attemptContext) {
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	if resp.Body == http.NoBody {
		ctx.end()
		return
	}
	b.base, b.ctx, b.over = resp.Body, ctx, hasNoContent(resp)
	if w, ok := resp.Body.(io.Writer); ok {
		b.duplex = true
		duplex := duplexBody{body: b, Writer: w}
		if half, ok := resp.Body.(halfCloser); ok {
			resp.Body = &halfCloserBody{duplex, half}
		} else {
			resp.Body = &duplex
		}
		return
	}
	resp.Body = b
}

func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.buffered {
		return b.readHead(p)
	}
	n, err := b.base.Read(p)
	if err != nil && !b.duplex {
		b.end()
	}
	return n, err
}

// hasNoContent reports whether resp has no content. For such a response the HTTP/2 client of net/http has an empty body of
// its own. Only that client's ContentLength is looked at: over HTTP/1 it is 0 for an upgrade, too.
func hasNoContent(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusNoContent, http.StatusNotModified:
		return true
	}
	if resp.ProtoMajor == 2 && resp.ContentLength == 0 {
		return true
	}
	return resp.Request != nil && resp.Request.Method == http.MethodHead
}

// hold calls release when the body has been read or closed, or when caller ends, which ends the body, too, unless it is
// duplex. It returns false if there is no body to wait for.
func (b *body) hold(caller context.Context, release func()) bool {
	b.holding.Lock()
	defer b.holding.Unlock()
	if b.base == nil || b.over {
		return false
	}
	if inner := b.release; inner != nil {
		b.release = func() {
			defer release()
			inner()
		}
		return true
	}
	b.release = release
	if caller.Done() != nil && !b.duplex { // net/http leaves an upgraded connection open when caller ends
		b.stopWaiting = context.AfterFunc(caller, func() { recovered.Call("weirhttp: releasing permits", func() { b.giveBack(true) }) })
	}
	return true
}

// giveBack releases what strategies hold until the body has been read or closed. Unless that is over, strategies further
// out can still hold something.
func (b *body) giveBack(over bool) {
	b.holding.Lock()
	release, stop := b.release, b.stopWaiting
	b.over = b.over || over
	b.release, b.stopWaiting = nil, nil
	b.holding.Unlock()
	if stop != nil {
		stop()
	}
	if release != nil {
		release()
	}
}

// end ends what lasts until the body has been read or closed.
func (b *body) end() {
	defer b.giveBack(true)
	b.ctx.end()
}

// readHead is Read of a buffered body.
func (b *body) readHead(p []byte) (int, error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case len(b.head) == 0:
		return 0, b.headErr
	}
	n := copy(p, b.head)
	b.head = b.head[n:]
	return n, nil
}

// Close does not wait for a Read: it ends a Read that waits for the server.
func (b *body) Close() error {
	b.closed.Store(true)
	defer b.end()
	return b.base.Close()
}

// errDiscarded is the error after the first bytes of a buffered body.
var errDiscarded = errors.New("weirhttp: the rest of the body was discarded when the next attempt began")

// buffer reads the first bytes of base, which can free the connection, and closes base. It keeps those bytes, because a
// strategy can still return the response; most bodies of failures have no more than drainBytes. While a strategy reads
// the body, buffer does nothing and returns false.
func (b *body) buffer() (done bool) {
	if b.base == nil {
		return true
	}
	if !b.reading.TryLock() {
		return false
	}
	defer b.reading.Unlock()
	if b.buffered || b.closed.Load() {
		return true
	}
	b.buffered, b.headErr = true, errDiscarded
	defer b.closeBase()
	b.head, b.headErr = b.drain(make([]byte, 0, 512))
	return true
}

// discard closes the body of a response that the caller does not get. With drain, it first tries to free the connection
// for other requests.
func (b *body) discard(drain bool) {
	if b.base == nil || b.closed.Swap(true) {
		return
	}
	defer b.closeBase()
	if drain && b.reading.TryLock() {
		defer b.reading.Unlock()
		if !b.buffered {
			_, _ = b.drain(make([]byte, 0, 512))
		}
	}
}

// closeBase closes base. It ends the context of the attempt first, because the Close of some bodies waits for that. For
// the connection that makes no difference: a body that was read to its end has already freed it.
func (b *body) closeBase() {
	defer b.giveBack(true)
	b.ctx.end()
	_ = b.base.Close() // an error has no consequence for a discarded body
}

// drain appends the first bytes of base to buf. The error is io.EOF if there are no more.
func (b *body) drain(buf []byte) ([]byte, error) {
	timer := time.AfterFunc(drainTime, func() { recovered.Call("weirhttp: closing a response's body", b.closeBase) })
	defer timer.Stop()
	for began := time.Now(); len(buf) < drainBytes && time.Since(began) < drainTime; {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := b.base.Read(buf[len(buf):min(cap(buf), drainBytes)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, io.EOF
		}
		if err != nil {
			return buf, errDiscarded
		}
	}
	return buf, errDiscarded
}

// closeResponse closes the body of a response that nothing uses.
func closeResponse(resp *http.Response) {
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close()
	}
}
