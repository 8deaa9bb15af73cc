package proxy

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// stallTime is how long a client can send nothing of a body whose length it has said, or take nothing of an answer. A
// stream has no such limit on what the client sends: it can be silent for as long as it likes.
const stallTime = time.Minute

// A pacedBody is the body of a request of a known length over HTTP/1. A Read fails if nothing comes for stallTime.
type pacedBody struct {
	io.ReadCloser
	connection *http.ResponseController
	stall      time.Duration
}

// paced returns the body of r for a handler.
func paced(w http.ResponseWriter, r *http.Request, stall time.Duration) io.ReadCloser {
	if r.ProtoMajor != 1 || r.ContentLength <= 0 {
		return r.Body
	}
	return &pacedBody{r.Body, http.NewResponseController(w), stall}
}

// Read lifts the deadline after a Read that has not failed: net/http reads from the connection to notice that the client
// goes away. After a failure the deadline stays, because weirhttp can have set it.
func (b *pacedBody) Read(p []byte) (int, error) {
	_ = b.connection.SetReadDeadline(time.Now().Add(b.stall)) // where it cannot be set, there is none
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		_ = b.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// NewListener returns a listener whose connections fail if the client takes nothing of an answer for a minute: otherwise
// it would hold its request and the connection to the upstream for as long as it likes.
func NewListener(l net.Listener) net.Listener { return &listener{l, stallTime} }

type listener struct {
	net.Listener
	stall time.Duration
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &connection{Conn: c, stall: l.stall}, nil
}

// A connection sets a deadline for each Write.
type connection struct {
	net.Conn
	stall time.Duration

	mu   sync.Mutex
	asks time.Time // the deadline that the server has set; zero: none
}

// SetWriteDeadline implements [net.Conn].
func (c *connection) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements [net.Conn].
func (c *connection) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks = t
	return c.Conn.SetDeadline(t)
}

// Write implements [net.Conn].
func (c *connection) Write(p []byte) (int, error) {
	if err := c.allow(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// allow sets the deadline of a Write, unless the server has set an earlier one.
func (c *connection) allow(until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asks.IsZero() && c.asks.Before(until) {
		return nil
	}
	return c.Conn.SetWriteDeadline(until)
}

// CloseWrite ends writing, as a TCP connection does: without it, both directions of a WebSocket would end at once.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
