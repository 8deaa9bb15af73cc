// Package paced bounds how long a client can hold a request by being slow; docs/slow-clients.md says it for users.
//
//   - A client must go on sending a body of a known length: a Read in which nothing comes for [Stall] fails. A body of unknown
//     length is a stream, which can be silent for as long as it likes.
//   - A client must take the answer, and the 1xx answers before it: a write of which it takes nothing for [Stall] fails, and the
//     connection ends; over HTTP/2, the stream. Between two writes, an answer can be silent for as long as it likes.
//   - The rest of a body that the handler did not want has [Linger] to come. net/http reads some of it before it sends
//     the answer, and would wait forever for a client that sends nothing.
//   - A connection that has switched to another protocol ends if the client takes nothing of a write for [Stall].
//
// All of this is done by the deadlines of [http.ResponseController], which net/http keeps for each connection of HTTP/1, and for each
// stream of HTTP/2.
package paced

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Stall is how long a client can stand still in the middle of a body or an answer.
	Stall = time.Minute
	// Linger is how long the rest of a body that is not wanted has to come.
	Linger = 5 * time.Second
)

// A body is the body of a request.
type body struct {
	io.ReadCloser
	answer   *Writer
	timed    bool        // its length is known
	complete atomic.Bool // it was read to its end

	mu     sync.Mutex
	expect bool // the first Read writes a 100 Continue
	over   bool // the deadline is no longer for this body to set
}

// Body returns the body of r, whose answer w is for, and a function to call when the handler returns.
func (w *Writer) Body(r *http.Request) (paced io.ReadCloser, end func()) {
	if r.ContentLength == 0 {
		return r.Body, func() {}
	}
	b := &body{ReadCloser: r.Body, answer: w, timed: r.ContentLength > 0, expect: r.ProtoMajor == 1 && r.Header["Expect"] != nil}
	return b, b.end
}

// Read lifts the deadline after a Read that has not failed: net/http reads from the connection to notice that the client
// goes away. After a failure the deadline stays, because weirhttp can have set it.
func (b *body) Read(p []byte) (int, error) {
	b.goOn()
	if b.timed {
		b.allow(time.Now().Add(Stall))
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.complete.Store(true)
		b.lift()
	case err == nil:
		b.lift()
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.release()
	}
	return n, err
}

// goOn bounds the 100 Continue that net/http writes in the first Read.
func (b *body) goOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expect && !b.over {
		b.answer.bound()
	}
	b.expect = false
}

// Close reads what is left, if that is not much.
func (b *body) Close() error {
	if b.timed {
		b.allow(time.Now().Add(Linger))
	}
	err := b.ReadCloser.Close()
	if err == nil {
		b.lift()
	}
	return err
}

// allow sets until when a Read can take, unless the handler has returned: [http.Transport] can read that late, and the
// deadline of the next request on the connection is not its own.
func (b *body) allow(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.answer.connection.SetReadDeadline(until) // where it cannot be set, there is none
	}
}

func (b *body) lift() {
	if b.timed {
		b.allow(time.Time{})
	}
}

// end bounds what net/http reads of the body after the handler. If the body is complete, there must be no deadline: net/http
// then reads from the connection to notice that the client goes away, and would take a client that is slow to read its
// answer for one that has gone. The context of every later request on the connection would have ended before it began.
func (b *body) end() {
	if !b.complete.Load() {
		b.allow(time.Now().Add(Linger))
	}
	b.release()
}

// release leaves the deadline as it is.
func (b *body) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

// A Writer bounds the writes of an answer.
type Writer struct {
	connection *http.ResponseController

	mu    sync.Mutex
	timer *time.Timer // nil before the first write
	began time.Time   // of the write; zero: there is none

	bounded bool // there is a deadline that is not one of a write
}

// NewWriter returns the Writer of an answer.
func NewWriter(w http.ResponseWriter) Writer {
	return Writer{connection: http.NewResponseController(w)}
}

// Begin begins a write. A timer costs less than a deadline, which over HTTP/2 would go through the goroutine of the connection twice
// for each write.
func (w *Writer) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Now()
	if w.bounded {
		w.bounded = false
		_ = w.connection.SetWriteDeadline(time.Time{})
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(Stall, w.expire)
	} else {
		w.timer.Reset(Stall)
	}
}

// End ends a write.
func (w *Writer) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Time{}
	w.timer.Stop()
}

// expire makes the write fail, unless it has ended, or is a later one.
func (w *Writer) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.began.IsZero() && time.Since(w.began) >= Stall {
		_ = w.connection.SetWriteDeadline(w.began) // a deadline in the past ends it at once
	}
}

// bound bounds what net/http writes by itself before the first write, which can begin much later.
func (w *Writer) bound() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bounded = true
	_ = w.connection.SetWriteDeadline(time.Now().Add(Stall))
}

// Last bounds what net/http writes of the answer after the handler.
func (w *Writer) Last() { _ = w.connection.SetWriteDeadline(time.Now().Add(Stall)) }

// A Conn is a connection that has switched to another protocol. It ends if the client takes nothing of what is written.
type Conn struct{ net.Conn }

// Write implements [io.Writer].
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(Stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// CloseWrite ends one direction, as a TCP connection can: without it, both directions of a WebSocket would end at once.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
