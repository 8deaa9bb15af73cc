package handlerio

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A writer is a ResponseWriter that knows whether the response has begun, and with which status, and whose methods fail
// when the time of the handler is over. It has no exported methods but those of the ResponseWriters of net/http: handlers
// look for others, such as Status, with type assertions.
type writer struct {
	inner     http.ResponseWriter
	request   *http.Request
	status    int       // 0: the response has not begun
	hijacked  bool      // the connection is the handler's
	rejected  bool      // a limiter gave the answer, not the handler
	effective int       // see SetEffectiveStatus; 0: status
	until     time.Time // when the time of the handler is over; zero: never
	// nil: writing has not begun, or is not limited. It is atomic, because the timer of a handler further inside sets deadlines
	// through this writer.
	writes  atomic.Pointer[cutoff]
	written int // bytes, at most headBytes
	// The body of the request if the handler's time is limited, else nil. Over HTTP/1,
	// net/http reads what the handler has left of it before it sends an answer.
	body *timedBody
}

// asWriter lets enclosing recognize every ResponseWriter that has this writer in it.
func (w *writer) asWriter() *writer { return w }

func (w *writer) Header() http.Header { return w.inner.Header() }

// begin records the first status that is not informational.
func (w *writer) begin(status int) {
	if w.status != 0 || status < 200 && status != http.StatusSwitchingProtocols {
		return
	}
	w.status = status
	w.limit()
	if status == http.StatusRequestEntityTooLarge && w.request != nil && w.request.ProtoMajor == 1 && HasBody(w.request) {
		// Without this the server would wait for the rest of the body. http.MaxBytesReader tells the server by an
		// unexported method, which a wrapper of the server's ResponseWriter cannot have.
		w.Header().Set("Connection", "close")
	}
	w.closeAfter()
}

// closeAfter makes the server close the connection after the answer if a deadline has disturbed the body.
func (w *writer) closeAfter() {
	if w.body != nil && w.body.disturbed.Load() && !w.hijacked && w.request != nil && w.request.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

// limit makes writing fail: WriteGrace after the time of the handler is over or, if the answer begins later than that,
// WriteGrace after it has begun.
func (w *writer) limit() {
	if w.until.IsZero() || w.writes.Load() != nil {
		return
	}
	by := w.until
	if now := time.Now(); now.After(by) {
		by = now
	}
	w.writes.Store(newCutoff(by.Add(WriteGrace), w.expire))
}

// expire makes writing fail. First it makes reading the body fail: before net/http writes, it reads what the handler has
// left of the body, and waits for the client.
func (w *writer) expire() {
	if w.body != nil && !w.body.ended() {
		w.body.expire()
	}
	_ = http.NewResponseController(w.inner).SetWriteDeadline(pastDeadline) // if it cannot be set, the Write waits
}

// unlimit lifts the limit on writing. If writing has already failed, the connection stays unusable.
func (w *writer) unlimit() {
	w.until = time.Time{}
	w.writes.Swap(nil).close()
}

// headBytes is more than net/http buffers before it sends the header.
const headBytes = 4 << 10

// drains reports whether the next call can send the header. Over HTTP/1, net/http first reads what the handler has left
// of the body, so that call waits for a client that sends slowly. Later calls do not.
func (w *writer) drains() bool {
	return w.body != nil && w.written < headBytes && !w.body.ended()
}

// enter begins a call that can wait for the client; leave ends it. If the time is over, enter makes the connection
// fail: otherwise net/http would end an answer that is half written as if it were complete.
func (w *writer) enter() (drains bool, err error) {
	writes := w.writes.Load()
	if err := writes.enter(); err != nil {
		writes.expireOnce()
		return false, err
	}
	if drains = w.drains(); drains {
		w.body.cutoff.enterLate()
	}
	return drains, nil
}

// leave ends a call for which enter returned drains.
func (w *writer) leave(drains bool) {
	w.writes.Load().leave(false)
	if drains {
		w.body.cutoff.leave(false)
	}
}

// SetWriteDeadline is for [http.ResponseController]. It does nothing after the time of the handler has ended writing.
func (w *writer) SetWriteDeadline(t time.Time) error {
	if w.writes.Load().hasExpired() {
		return nil
	}
	return http.NewResponseController(w.inner).SetWriteDeadline(t)
}

// SetReadDeadline is for [http.ResponseController]. It does nothing after the time of the handler has ended reading.
func (w *writer) SetReadDeadline(t time.Time) error {
	if w.body != nil && w.body.cutoff.hasExpired() {
		return nil
	}
	return http.NewResponseController(w.inner).SetReadDeadline(t)
}

func (w *writer) WriteHeader(status int) {
	w.begin(status)
	w.inner.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	if len(p) <= headBytes || !w.drains() {
		return w.write(p)
	}
	// In two calls: the first can wait for the body of the request, the second only for the client to read.
	n, err := w.write(p[:headBytes])
	if err != nil {
		return n, err
	}
	m, err := w.write(p[headBytes:])
	return n + m, err
}

// write is Write for a response that has begun.
func (w *writer) write(p []byte) (n int, err error) {
	drains, err := w.enter()
	if err != nil {
		return 0, err
	}
	defer w.leave(drains)
	n, err = w.inner.Write(p)
	w.written = min(w.written+n, headBytes)
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
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

func (w *writer) flush() error {
	w.begin(http.StatusOK)
	drains, err := w.enter()
	if err != nil {
		return err
	}
	defer w.leave(drains)
	err = http.NewResponseController(w.inner).Flush()
	w.written = headBytes
	return err
}

func (w *writer) hijack() (net.Conn, *bufio.ReadWriter, error) {
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

// ReadFrom copies with the ReadFrom of the inner one, which can use sendfile. As long as a call can wait for the body
// of the request, ReadFrom copies with Write. If the source fails at once, the response has not begun.
func (w *writer) ReadFrom(src io.Reader) (n int64, err error) {
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
	inner, ok := w.inner.(io.ReaderFrom)
	if !ok {
		m, err := io.Copy(struct{ io.Writer }{w}, src)
		return n + m, err
	}
	if _, err := w.enter(); err != nil {
		return n, err
	}
	defer w.leave(false)
	m, err := inner.ReadFrom(src)
	return n + m, err
}
