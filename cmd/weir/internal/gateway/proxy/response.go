package proxy

import (
	"bufio"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/paced"
)

// A response is a ResponseWriter that knows what was answered, for the access log.
type response struct {
	http.ResponseWriter
	paced  paced.Writer
	status int // 0: the answer has not begun
	bytes  atomic.Int64
	closes bool // the connection ends with the answer
}

// duplex lets the answer begin before the body of the request has been read, if the length of the body is not known.
// Otherwise net/http would read what is left of it first, and a client that waits for the answer before it sends the rest
// would wait forever. Over HTTP/2 nothing is needed.
//
// The connection then ends with the answer. The body may be left unread, and nothing of it must be taken for a request. It may also
// have had a Content-Length, of which net/http does not tell: a proxy before the gateway may have believed that, and then it has
// taken for a part of the body what is a request here (RFC 9112, section 6.1). In HTTP/1.0 net/http ignores the
// Transfer-Encoding, and what looks like the next request can be the body.
func (w *response) duplex(r *http.Request) {
	if r.ProtoMajor != 1 {
		return
	}
	w.closes = r.ProtoMinor == 0 || r.ContentLength < 0 && http.NewResponseController(w.ResponseWriter).EnableFullDuplex() == nil
}

// begin records the status.
func (w *response) begin(status int) {
	if w.status != 0 || status < 200 {
		return
	}
	w.status = status
	if w.closes {
		w.Header().Set("Connection", "close")
	}
}

func (w *response) WriteHeader(status int) {
	if w.begin(status); w.status == 0 { // a 1xx answer is written at once
		w.paced.Begin()
		defer w.paced.End()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	w.paced.Begin()
	defer w.paced.End()
	n, err := w.ResponseWriter.Write(p)
	w.bytes.Add(int64(n))
	return n, err
}

// Flush is here because handlers look for [http.Flusher], and Unwrap is for [http.ResponseController].
func (w *response) Flush() {
	w.paced.Begin()
	defer w.paced.End()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack is for connections that switch protocols, such as WebSockets. What is written then, with the 101 before it, does not go through w.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, b, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
		c = &switchedConn{&paced.Conn{Conn: c}, &w.bytes}
	}
	return c, b, err
}

// A switchedConn counts what the client gets.
type switchedConn struct {
	*paced.Conn
	bytes *atomic.Int64
}

func (c *switchedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}
