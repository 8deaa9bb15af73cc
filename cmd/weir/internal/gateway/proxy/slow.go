package proxy

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// stallTime is how long a client can send nothing of a body whose length it has said, or take nothing of an answer. A
// stream has no such limit on what the client sends: it can be silent for as long as it likes.
const stallTime = time.Minute

// lingerTime is how long a client has to send the rest of a body that the gateway does not want: net/http reads some of it
// before it sends the answer, and would wait forever for a client that sends nothing.
const lingerTime = 5 * time.Second

// A pacedBody is the body of a request of a known length. A Read fails if nothing comes for stall.
type pacedBody struct {
	io.ReadCloser
	connection    *http.ResponseController
	stall, linger time.Duration

	complete atomic.Bool // the body was read to its end

	mu   sync.Mutex
	over bool // the deadline is no longer for this body to set
}

// paced returns the body of r for a handler, and a function to call when the handler returns.
func (h *Handler) paced(w http.ResponseWriter, r *http.Request) (body io.ReadCloser, end func()) {
	if r.ContentLength == 0 {
		return r.Body, func() {}
	}
	b := &pacedBody{ReadCloser: r.Body, connection: http.NewResponseController(w), stall: h.stall, linger: h.linger}
	if r.ContentLength > 0 {
		return b, b.end
	}
	if d, ok := r.Body.(*duplexBody); ok {
		return d, func() {
			b.complete.Store(d.complete.Load())
			b.end()
		}
	}
	return r.Body, b.end
}

// Read lifts the deadline after a Read that has not failed: net/http reads from the connection to notice that the client
// goes away. After a failure the deadline stays, because weirhttp can have set it.
func (b *pacedBody) Read(p []byte) (int, error) {
	b.allow(time.Now().Add(b.stall))
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil || err == io.EOF:
		if err == io.EOF {
			b.complete.Store(true)
		}
		b.allow(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.release()
	}
	return n, err
}

// Close reads what is left, if that is not much.
func (b *pacedBody) Close() error {
	b.allow(time.Now().Add(b.linger))
	err := b.ReadCloser.Close()
	if err == nil {
		b.allow(time.Time{})
	}
	return err
}

// allow sets until when a Read can take, unless the handler has returned: [http.Transport] can read that late, and the
// deadline of the next request on the connection is not its own.
func (b *pacedBody) allow(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.connection.SetReadDeadline(until) // where it cannot be set, there is none
	}
}

// end bounds what net/http reads of the body after the handler. If the body is complete, there must be no deadline: net/http
// then reads from the connection to notice that the client goes away, and would take a client that is slow to read its
// answer for one that has gone. The context of every later request on the connection would have ended before it began.
func (b *pacedBody) end() {
	if !b.complete.Load() {
		b.allow(time.Now().Add(b.linger))
	}
	b.release()
}

// release leaves the deadline as it is.
func (b *pacedBody) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

// A pacedWriter resets the stream of an answer over HTTP/2 of which the client takes nothing for stall. Each stream has a window of
// its own: a client that does not open it holds its request although the connection can be written, which is all that
// a [listener] bounds. A pacedWriter that is nil does nothing.
type pacedWriter struct {
	connection *http.ResponseController
	stall      time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil before the first write
	began time.Time   // of the write; zero: there is none
}

func newPacedWriter(w http.ResponseWriter, r *http.Request, stall time.Duration) *pacedWriter {
	if r.ProtoMajor != 2 {
		return nil
	}
	return &pacedWriter{connection: http.NewResponseController(w), stall: stall}
}

// begin begins a write.
func (p *pacedWriter) begin() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = time.Now()
	if p.timer == nil {
		p.timer = time.AfterFunc(p.stall, p.expire)
	} else {
		p.timer.Reset(p.stall)
	}
}

// end ends a write: a stream can be silent for as long as it likes.
func (p *pacedWriter) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = time.Time{}
	p.timer.Stop()
}

// expire resets the stream, unless the write has ended, or is a later one.
func (p *pacedWriter) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.began.IsZero() && time.Since(p.began) >= p.stall {
		_ = p.connection.SetWriteDeadline(p.began) // a deadline in the past resets at once
	}
}

// last bounds what net/http writes of the answer after the handler.
func (p *pacedWriter) last() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil { // without a body there is nothing to wait for
		_ = p.connection.SetWriteDeadline(time.Now().Add(p.stall))
	}
}
