package weirhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// A response is a ResponseWriter that knows whether the response has begun, and with which status. Handlers get its
// writer, which has exactly the optional methods that the inner one has; [http.ResponseController] works through it.
type response struct {
	inner    http.ResponseWriter
	request  *http.Request // nil: not known
	status   int           // 0: it has not begun
	hijacked bool          // the connection is the handler's
	rejected bool          // a limiter gave the answer, not the handler
	until    time.Time     // when the time of the handler is over; zero: never
	writes   *cutoff       // nil: writing has not begun, or is not limited
	written  int           // bytes, up to headBytes or a little more
	// The body of the request if the handler's time is limited, else nil. Over HTTP/1,
	// net/http reads what the handler has left of it before it sends an answer.
	body *timedBody
}

func newResponse(w http.ResponseWriter) *response { return &response{inner: w} }

// asResponse lets enclosing recognize every writer that has this response in it.
func (w *response) asResponse() *response { return w }

// begun reports whether anything was sent that another answer would mix with.
func (w *response) begun() bool { return w.status != 0 }

func (w *response) Header() http.Header { return w.inner.Header() }

// begin records the first status that is not informational.
func (w *response) begin(status int) {
	if w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	w.limit()
	if status == http.StatusRequestEntityTooLarge && w.request != nil && w.request.ProtoMajor == 1 && hasBody(w.request) {
		// The rest of the body is not waited for, as with http.MaxBytesReader. That one
		// tells the server by an unexported method, which only the server's
		// ResponseWriter has.
		w.Header().Set("Connection", "close")
	}
	w.closeAfter()
}

// closeAfter makes the server close the connection after the answer if a deadline has disturbed the body.
func (w *response) closeAfter() {
	if w.body != nil && w.body.disturbed.Load() && !w.hijacked && w.request != nil && w.request.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// limit makes writing fail a writeGrace after the time of the handler is over, or after the beginning of an answer that
// begins later.
func (w *response) limit() {
	if w.until.IsZero() || w.writes != nil {
		return
	}
	by := w.until
	if now := time.Now(); now.After(by) {
		by = now
	}
	w.writes = newCutoff(by.Add(writeGrace), w.expire)
}

// expire makes writing fail, and before that net/http's reading of what is left of the body.
func (w *response) expire() {
	if w.body != nil && !w.body.ended() {
		w.body.expire()
	}
	_ = http.NewResponseController(w.inner).SetWriteDeadline(pastDeadline) // if it cannot be set, the Write waits
}

// unlimit ends limit. A connection that has failed stays so.
func (w *response) unlimit() {
	w.until = time.Time{}
	w.writes.close()
	w.writes = nil
}

// headBytes is more than net/http buffers before it sends the header.
const headBytes = 4 << 10

// drains reports whether the next call can send the header. Over HTTP/1, net/http first reads what the handler has left
// of the body, so that call waits for a client that sends slowly. Later calls do not.
func (w *response) drains() bool {
	return w.body != nil && w.written < headBytes && !w.body.ended()
}

// enter begins a call that can wait for the client; leave ends it. If the time is over, enter makes the connection
// fail: otherwise net/http would end an answer that is half written as if it were complete.
func (w *response) enter() (drains bool, err error) {
	if err := w.writes.enter(); err != nil {
		w.writes.expireOnce()
		return false, err
	}
	if drains = w.drains(); drains {
		w.body.cutoff.enterLate()
	}
	return drains, nil
}

// leave ends a call for which enter returned drains.
func (w *response) leave(drains bool) {
	w.writes.leave(false)
	if drains {
		w.body.cutoff.leave(false)
	}
}

// SetWriteDeadline is for [http.ResponseController]. It does nothing after the time of the handler has ended writing.
func (w *response) SetWriteDeadline(t time.Time) error {
	if w.writes.hasExpired() {
		return nil
	}
	return http.NewResponseController(w.inner).SetWriteDeadline(t)
}

// SetReadDeadline is for [http.ResponseController]. It does nothing after the time of the handler has ended reading.
func (w *response) SetReadDeadline(t time.Time) error {
	if w.body != nil && w.body.cutoff.hasExpired() {
		return nil
	}
	return http.NewResponseController(w.inner).SetReadDeadline(t)
}

// EnableFullDuplex is for [http.ResponseController].
func (w *response) EnableFullDuplex() error {
	return http.NewResponseController(w.inner).EnableFullDuplex()
}

// enclosing returns the response that w is or wraps, or nil.
func enclosing(w http.ResponseWriter) *response {
	for w != nil {
		if own, ok := w.(interface{ asResponse() *response }); ok {
			return own.asResponse()
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
	if len(p) <= headBytes || !w.drains() {
		return w.write(p)
	}
	n, err := w.write(p[:headBytes]) // on its own, so that it waits either for the body or for the client to read
	if err != nil {
		return n, err
	}
	m, err := w.write(p[headBytes:])
	return n + m, err
}

// write is Write for a response that has begun.
func (w *response) write(p []byte) (n int, err error) {
	drains, err := w.enter()
	if err != nil {
		return 0, err
	}
	defer w.leave(drains)
	n, err = w.inner.Write(p)
	w.count(n)
	return n, err
}

// count adds to written until that decides nothing more.
func (w *response) count(n int) {
	if w.written < headBytes {
		w.written += n
	}
}

func (w *response) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	if w.drains() {
		return w.Write([]byte(s))
	}
	if _, err := w.enter(); err != nil {
		return 0, err
	}
	defer w.leave(false)
	return io.WriteString(w.inner, s)
}

func (w *response) flush() error {
	w.begin(http.StatusOK)
	drains, err := w.enter()
	if err != nil {
		return err
	}
	defer w.leave(drains)
	err = http.NewResponseController(w.inner).Flush()
	w.count(headBytes)
	return err
}

func (w *response) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.inner).Hijack()
	if err == nil {
		w.hijacked = true
		w.unlimit() // a hijacked connection has no deadlines, and is the handler's
		if w.body != nil {
			w.body.cutoff.close()
		}
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// readFrom copies as the inner one does, such as with sendfile. If the source fails at once, the response has not
// begun.
func (w *response) readFrom(src io.Reader) (n int64, err error) {
	w.limit()
	defer func() {
		if n > 0 || err == nil {
			w.begin(http.StatusOK)
		}
	}()
	for w.drains() {
		head := make([]byte, headBytes)
		m, err := src.Read(head)
		if m > 0 {
			m, werr := w.Write(head[:m])
			if n += int64(m); werr != nil {
				return n, werr
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return n, err
		}
	}
	if _, err := w.enter(); err != nil {
		return n, err
	}
	defer w.leave(false)
	m, err := w.inner.(io.ReaderFrom).ReadFrom(src)
	return n + m, err
}

// markRejected marks the response, and those further out, as the answer of a limiter.
func markRejected(w http.ResponseWriter) {
	for r := enclosing(w); r != nil; r = enclosing(r.inner) {
		r.rejected = true
	}
}
