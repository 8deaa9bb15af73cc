package weirhttp

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// drainBytes is how much of a body that nobody wants is read so that its
	// connection can be used again: more is not worth it.
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
		resp.Body = &duplexBody{body: b, Writer: w}
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

// Close does not wait for a Read: it may be what is to end it.
func (b *body) Close() error {
	b.closed.Store(true)
	err := b.base.Close()
	b.life.end()
	return err
}

// errCut is what comes after the first bytes of a body that was thrown away.
var errCut = errors.New("weirhttp: the rest of the body was thrown away when the next attempt began")

// condense closes what is behind the body and keeps its first bytes, which had to be
// read in any case. So a strategy can still return the response; most bodies of
// failures are not longer.
func (b *body) condense() {
	if b.base == nil || !b.reading.TryLock() {
		return // somebody reads it: it is not ours to close
	}
	defer b.reading.Unlock()
	if b.condensed || b.closed.Load() {
		return
	}
	b.kept, b.after = b.drain(make([]byte, 0, 512))
	b.condensed = true
	b.shut()
}

// discard closes a body that nobody has. drain: try to save its connection.
func (b *body) discard(drain bool) {
	if b.base == nil || b.closed.Swap(true) {
		return
	}
	if drain && b.reading.TryLock() {
		if !b.condensed {
			_, _ = b.drain(make([]byte, 0, 512))
		}
		b.reading.Unlock()
	}
	b.shut()
}

func (b *body) shut() {
	_ = b.base.Close() // it is thrown away
	b.life.end()
}

// drain appends the first bytes to buf, and returns how the reading ended.
func (b *body) drain(buf []byte) ([]byte, error) {
	timer := time.AfterFunc(drainTime, b.shut)
	defer timer.Stop()
	for len(buf) < drainBytes {
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
