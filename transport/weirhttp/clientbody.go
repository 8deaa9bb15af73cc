package weirhttp

import (
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
	// used again: a new connection costs less than reading more.
	drainBytes = 4 << 10
	// drainTime is how long that may take.
	drainTime = 50 * time.Millisecond
)

// body is the body of a response. It ends the lifetime of its attempt when it has
// been read or closed.
type body struct {
	base io.ReadCloser // nil: there is nothing to close
	life *lifetime     // nil: nothing to end
	both bool          // it is written, too, and may be after its end

	closed  atomic.Bool
	reading sync.Mutex // held while base is read
	// Under reading; of one that was condensed:
	condensed bool
	kept      []byte // what comes yet
	after     error  // what comes then
}

// duplexBody is the body of a response to an upgrade, which can be written, too.
type duplexBody struct {
	*body
	io.Writer
}

// A halfCloser ends writing alone, as a TCP connection does.
type halfCloser interface{ CloseWrite() error }

// halfCloserBody is a duplexBody of which the writing can end first. What forwards an
// upgraded connection, as httputil.ReverseProxy does, looks for the method: without it
// both directions end when the client has no more to say.
type halfCloserBody struct {
	duplexBody
	halfCloser
}

// wrap puts b in the place of the body of resp. One that is empty stays as it is.
func (b *body) wrap(resp *http.Response, life *lifetime) {
	if resp.Body == nil {
		resp.Body = http.NoBody
	}
	if resp.Body == http.NoBody {
		life.end()
		return
	}
	b.base, b.life = resp.Body, life
	if w, ok := resp.Body.(io.Writer); ok {
		b.both = true
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
	if b.condensed {
		return b.readKept(p)
	}
	n, err := b.base.Read(p)
	if err != nil && !b.both {
		b.life.end()
	}
	return n, err
}

func (b *body) readKept(p []byte) (int, error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case len(b.kept) == 0:
		return 0, b.after
	}
	n := copy(p, b.kept)
	b.kept = b.kept[n:]
	return n, nil
}

// Close does not wait for a Read: closing ends a Read that waits for the server.
func (b *body) Close() error {
	b.closed.Store(true)
	defer b.life.end()
	return b.base.Close()
}

// errCut is what comes after the first bytes of a body that was thrown away.
var errCut = errors.New("weirhttp: the rest of the body was thrown away when the next attempt began")

// condense closes what is behind the body and keeps its first bytes, which had to be
// read in any case. So a strategy can still return the response; most bodies of
// failures are not longer. condense returns false, and has done nothing, while a strategy
// reads the body.
func (b *body) condense() (done bool) {
	if b.base == nil {
		return true
	}
	if !b.reading.TryLock() {
		return false
	}
	defer b.reading.Unlock()
	if b.condensed || b.closed.Load() {
		return true
	}
	b.condensed, b.after = true, errCut
	defer b.shut()
	b.kept, b.after = b.drain(make([]byte, 0, 512))
	return true
}

// discard closes the body of a response that the caller does not get. drain: try to
// save its connection.
func (b *body) discard(drain bool) {
	if b.base == nil || b.closed.Swap(true) {
		return
	}
	defer b.shut()
	if drain && b.reading.TryLock() {
		defer b.reading.Unlock()
		if !b.condensed {
			_, _ = b.drain(make([]byte, 0, 512))
		}
	}
}

// shut ends the attempt first: a Close that waits until then does not wait longer, and
// a body that was read to its end has freed its connection already.
func (b *body) shut() {
	b.life.end()
	_ = b.base.Close() // it is thrown away
}

// drain appends the first bytes to buf, and returns how the reading ended.
func (b *body) drain(buf []byte) ([]byte, error) {
	timer := time.AfterFunc(drainTime, func() { recovered.Call("weirhttp: closing a response's body", b.shut) })
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
			return buf, errCut
		}
	}
	return buf, errCut
}

func closeResponse(resp *http.Response) {
	if resp != nil && resp.Body != nil {
		_ = resp.Body.Close() // it is thrown away
	}
}
