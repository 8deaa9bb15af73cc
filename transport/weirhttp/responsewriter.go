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
	request  *http.Request // nil: not known
	status   int           // 0: it has not begun
	hijacked bool          // the connection is the handler's
	rejected bool          // it is the answer of a limiter, and says nothing of the handler
	until    time.Time     // when the time of the handler is over; zero: never
	writes   *cutoff       // nil: writing has not begun, or may take as long as it likes
	written  int           // bytes, up to headBytes or a little more
	// The body of the request, if the handler's time is limited. Before an answer goes
	// out over HTTP/1, net/http reads what the handler has left of it. Else nil.
	body *timedBody
}

func newResponse(w http.ResponseWriter) *response { return &response{inner: w} }

func (w *response) self() *response { return w }

// begun tells whether anything was sent that another answer would mix with.
func (w *response) begun() bool { return w.status != 0 }

func (w *response) Header() http.Header { return w.inner.Header() }

// begin notes the first status that is not informational.
func (w *response) begin(status int) {
	if w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	w.limit()
	if status == http.StatusRequestEntityTooLarge && w.request != nil && w.request.ProtoMajor == 1 && hasBody(w.request) {
		// As http.MaxBytesReader has it: the rest of the body is not waited for. It says
		// so by a method that a ResponseWriter of ours cannot have.
		w.Header().Set("Connection", "close")
	}
	w.closeAfter()
}

// closeAfter has the connection closed after the answer if its body was spoilt.
func (w *response) closeAfter() {
	if w.body != nil && w.body.spoilt.Load() && !w.hijacked && w.request != nil && w.request.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// limit has writing fail when the time of the handler, or for an answer that begins
// later its own, is over.
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

// expire makes writing fail, and net/http's reading of what is left of the body, which
// comes before.
func (w *response) expire() {
	if w.body != nil && !w.body.ended() {
		w.body.expire()
	}
	_ = http.NewResponseController(w.inner).SetWriteDeadline(aLongTimeAgo) // where it cannot be set, the Write waits
}

// unlimit leaves the connection to its owner. What has failed stays failed.
func (w *response) unlimit() {
	w.until = time.Time{}
	w.writes.close()
	w.writes = nil
}

// headBytes is more than net/http gathers before it sends the header.
const headBytes = 4 << 10

// drains reports whether the next call may send the header. Over HTTP/1, net/http first
// reads what the handler has left of the body, so such a call waits for a client that
// sends slowly. It is the only one that does: later, net/http reads for itself.
func (w *response) drains() bool {
	return w.body != nil && w.written < headBytes && !w.body.ended()
}

// enter begins a call that may wait for the client; leave ends it. When the time is
// over, the connection is of no use any more: without act, net/http would end an answer
// that is only half written as if it were whole.
func (w *response) enter() (drains bool, err error) {
	if err := w.writes.enter(); err != nil {
		w.writes.act()
		return false, err
	}
	if drains = w.drains(); drains {
		w.body.cutoff.enterLate()
	}
	return drains, nil
}

func (w *response) leave(drains bool) {
	w.writes.leave(false)
	if drains {
		w.body.cutoff.leave(false)
	}
}

// SetWriteDeadline is for [http.ResponseController]. Once writes fail because
// the time of the handler was over, it does nothing.
func (w *response) SetWriteDeadline(t time.Time) error {
	if w.writes.passed() {
		return nil
	}
	return http.NewResponseController(w.inner).SetWriteDeadline(t)
}

// SetReadDeadline is for [http.ResponseController], as SetWriteDeadline is.
func (w *response) SetReadDeadline(t time.Time) error {
	if w.body != nil && w.body.cutoff.passed() {
		return nil
	}
	return http.NewResponseController(w.inner).SetReadDeadline(t)
}

// EnableFullDuplex is for [http.ResponseController].
func (w *response) EnableFullDuplex() error {
	return http.NewResponseController(w.inner).EnableFullDuplex()
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
	if len(p) <= headBytes || !w.drains() {
		return w.write(p)
	}
	n, err := w.write(p[:headBytes]) // apart, so that it waits for one thing only
	if err != nil {
		return n, err
	}
	m, err := w.write(p[headBytes:])
	return n + m, err
}

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

// count counts as far as it matters.
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
		w.unlimit() // the connection has no deadlines now, and is not ours
		if w.body != nil {
			w.body.cutoff.close()
		}
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// readFrom lets the inner one copy in its own way, such as with sendfile. A source
// that fails at once leaves a response that has not begun.
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

// markRejected notes that what follows is the answer of a limiter.
func markRejected(w http.ResponseWriter) {
	for r := enclosing(w); r != nil; r = enclosing(r.inner) {
		r.rejected = true
	}
}
