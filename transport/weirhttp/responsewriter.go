package weirhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// A response is a ResponseWriter that knows whether the response has begun, and
// with which status. What handlers get is writer(), which has the methods that the
// inner one has and no others; [http.ResponseController] works through it.
type response struct {
	inner    http.ResponseWriter
	status   int       // 0: it has not begun
	hijacked bool      // the connection is the handler's
	rejected bool      // it is the answer of a limiter, and says nothing of the handler
	writeBy  time.Time // when writing is to fail; zero: whenever the server says
	limited  bool      // writeBy was set on the connection
	chosen   bool      // the handler has set a write deadline
	usual    time.Time // which one; zero: none
	// The body of the request, if it has a deadline: before an answer goes out over
	// HTTP/1, the server reads what the handler has left of it. Else nil.
	body *timedBody
}

func newResponse(w http.ResponseWriter) *response { return &response{inner: w} }

func (w *response) self() *response { return w }

// begun tells whether anything was sent that another answer would mix with.
func (w *response) begun() bool { return w.status != 0 }

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.inner }

func (w *response) Header() http.Header { return w.inner.Header() }

// begin notes the first status that is not informational.
func (w *response) begin(status int) {
	if w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	w.setDeadline() // not earlier: over HTTP/2 it would end a response that has not begun
}

// setDeadline sets the write deadline, unless a response further out has one that
// is earlier. Those come first, so that they do not replace this one.
func (w *response) setDeadline() {
	if w.writeBy.IsZero() || w.limited {
		return
	}
	if w.body != nil {
		w.body.limit()
	}
	around := enclosing(w.inner)
	for a := around; a != nil; a = enclosing(a.inner) {
		a.setDeadline()
	}
	if by := around.earliest(); by.IsZero() || by.After(w.writeBy) {
		w.limited = http.NewResponseController(raw(w)).SetWriteDeadline(w.writeBy) == nil
	}
}

// earliest is when writing fails, here or further out; zero: never.
func (w *response) earliest() (by time.Time) {
	for ; w != nil; w = enclosing(w.inner) {
		by = earlier(by, w.writeBy)
		if w.chosen {
			by = earlier(by, w.usual)
		}
	}
	return by
}

// unlimit puts back the write deadline that was there. What has failed by ours
// stays failed, and what is only buffered still goes out.
func (w *response) unlimit(server *http.Server) {
	w.writeBy = time.Time{}
	if !w.limited || w.hijacked {
		return
	}
	w.limited = false
	usual := enclosing(w.inner).earliest()
	if w.chosen {
		usual = earlier(usual, w.usual)
	} else if usual.IsZero() && server != nil && server.WriteTimeout > 0 {
		usual = time.Now().Add(server.WriteTimeout)
	}
	_ = http.NewResponseController(raw(w)).SetWriteDeadline(usual) // it could be set before
}

// SetWriteDeadline is for [http.ResponseController]. A deadline of ours stays in force
// if it is earlier.
func (w *response) SetWriteDeadline(t time.Time) error {
	by := t
	for o := w; o != nil; o = enclosing(o.inner) {
		by = earlier(by, o.writeBy)
	}
	if err := http.NewResponseController(raw(w)).SetWriteDeadline(by); err != nil {
		return err
	}
	for o := w; o != nil; o = enclosing(o.inner) {
		if !o.writeBy.IsZero() {
			o.chosen, o.usual, o.limited = true, t, true
		}
	}
	return nil
}

// SetReadDeadline is for [http.ResponseController]. A deadline of ours stays in force
// if it is earlier.
func (w *response) SetReadDeadline(t time.Time) error {
	for o := w; o != nil; o = enclosing(o.inner) {
		if o.body != nil {
			return o.body.choose(t)
		}
	}
	return http.NewResponseController(raw(w)).SetReadDeadline(t)
}

// raw is what is inside of all responses of ours.
func raw(w http.ResponseWriter) http.ResponseWriter {
	for own := enclosing(w); own != nil; own = enclosing(w) {
		w = own.inner
	}
	return w
}

// enclosing returns the response of ours that w is or wraps, or nil.
func enclosing(w http.ResponseWriter) *response {
	for w != nil {
		if own, ok := w.(interface{ self() *response }); ok {
			return own.self()
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = u.Unwrap()
	}
	return nil
}

func (w *response) WriteHeader(status int) {
	w.begin(status)
	w.inner.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.inner.Write(p)
}

func (w *response) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.inner, s)
}

// FlushError is what [http.ResponseController] looks for first.
func (w *response) FlushError() error {
	c := http.NewResponseController(w.inner)
	if !canFlush(w.inner) {
		return http.ErrNotSupported
	}
	w.begin(http.StatusOK)
	return c.Flush()
}

func (w *response) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.inner).Hijack()
	if err == nil {
		w.hijacked = true
		w.writeBy = time.Time{} // the connection has no deadlines now, and is not ours
		if w.body != nil {
			w.body.abandon()
		}
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// readFrom lets the inner one copy in its own way, such as with sendfile. A source
// that fails at once leaves a response that has not begun.
func (w *response) readFrom(src io.Reader) (n int64, err error) {
	w.setDeadline()
	defer func() {
		if n > 0 || err == nil {
			w.begin(http.StatusOK)
		}
	}()
	return w.inner.(io.ReaderFrom).ReadFrom(src)
}

// markRejected notes that what follows is the answer of a limiter.
func markRejected(w http.ResponseWriter) {
	for r := enclosing(w); r != nil; r = enclosing(r.inner) {
		r.rejected = true
	}
}

// canFlush and canHijack look through wrappers, as a ResponseController does.
func canFlush(w http.ResponseWriter) bool {
	return inside(w, func(w http.ResponseWriter) bool {
		switch w.(type) {
		case interface{ FlushError() error }, http.Flusher:
			return true
		}
		return false
	})
}

func canHijack(w http.ResponseWriter) bool {
	return inside(w, func(w http.ResponseWriter) bool {
		_, ok := w.(http.Hijacker)
		return ok
	})
}

// inside tells whether w, or what it wraps, has something.
func inside(w http.ResponseWriter, has func(http.ResponseWriter) bool) bool {
	for w != nil {
		if own, ok := w.(interface{ self() *response }); ok {
			w = own.self().inner // ours has a FlushError whatever the inner one has
			continue
		}
		if has(w) {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
	return false
}
