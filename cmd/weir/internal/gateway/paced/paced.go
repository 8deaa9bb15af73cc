// Package paced bounds how long a client can hold a request by being slow.
//
//   - A body of a known length must go on: a Read in which nothing comes for [Pace.Stall] fails. A body of unknown length is a
//     stream, which can be silent for as long as it likes.
//   - An answer must be taken: a Write of which the client takes nothing for [Pace.Stall] fails, and the connection ends; over
//     HTTP/2, the stream. Between two writes, an answer can be silent for as long as it likes.
//   - What is left of a body that the handler did not want has [Pace.Linger] to come. net/http reads some of it before it sends
//     the answer, and would wait forever for a client that sends nothing.
//
// All of this is done by the deadlines of [http.ResponseController], which net/http keeps for each connection of HTTP/1, and for each
// stream of HTTP/2.
package paced

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Pace is how slow a client can be.
type Pace struct{ Stall, Linger time.Duration }

// A body is the body of a request.
type body struct {
	io.ReadCloser
	Pace
	connection *http.ResponseController
	timed      bool        // its length is known
	complete   atomic.Bool // it was read to its end

	mu   sync.Mutex
	over bool // the deadline is no longer for this body to set
}

// Body returns the body of r for a handler, and a function to call when the handler returns.
func (p Pace) Body(w http.ResponseWriter, r *http.Request) (paced io.ReadCloser, end func()) {
	if r.ContentLength == 0 {
		return r.Body, func() {}
	}
	b := &body{ReadCloser: r.Body, Pace: p, connection: http.NewResponseController(w), timed: r.ContentLength > 0}
	return b, b.end
}

// Read lifts the deadline after a Read that has not failed: net/http reads from the connection to notice that the client
// goes away. After a failure the deadline stays, because weirhttp can have set it.
func (b *body) Read(p []byte) (int, error) {
	if b.timed {
		b.allow(time.Now().Add(b.Stall))
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

// Close reads what is left, if that is not much.
func (b *body) Close() error {
	if b.timed {
		b.allow(time.Now().Add(b.Linger))
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
		_ = b.connection.SetReadDeadline(until) // where it cannot be set, there is none
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
		b.allow(time.Now().Add(b.Linger))
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
	stall      time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil before the first write
	began time.Time   // of the write; zero: there is none
}

// Writer returns the Writer of an answer.
func (p Pace) Writer(w http.ResponseWriter) Writer {
	return Writer{connection: http.NewResponseController(w), stall: p.Stall}
}

// Begin begins a write. A timer costs less than a deadline, which over HTTP/2 would go through the goroutine of the connection twice
// for each write.
func (w *Writer) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.stall, w.expire)
	} else {
		w.timer.Reset(w.stall)
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
	if !w.began.IsZero() && time.Since(w.began) >= w.stall {
		_ = w.connection.SetWriteDeadline(w.began) // a deadline in the past ends it at once
	}
}

// Last bounds what net/http writes of the answer after the handler.
func (w *Writer) Last() { _ = w.connection.SetWriteDeadline(time.Now().Add(w.stall)) }
