package testserver

import (
	"net"
	"net/http"
	"sync"
	"testing"
)

// Pipes is a listener whose connections are pipes: with it a server runs in a bubble of testing/synctest. Make one with [ServePipes] in
// the bubble.
type Pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

// ServePipes serves on pipes until the test ends.
func ServePipes(t testing.TB, server *http.Server) *Pipes {
	p := &Pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	go func() { _ = server.Serve(p) }()
	t.Cleanup(func() { _ = server.Close() })
	return p
}

// Dial returns the client's end of a new connection.
func (p *Pipes) Dial() net.Conn {
	client, server := net.Pipe()
	p.dialed <- server
	return client
}

// Accept implements [net.Listener].
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *Pipes) Close() error {
	p.close()
	return nil
}

// Addr implements [net.Listener].
func (p *Pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
