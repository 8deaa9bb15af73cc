package proxy

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// NewListener returns a listener whose connections fail if the client takes nothing of an answer for a minute: otherwise
// it would hold its request and the connection to the upstream for as long as it likes.
//
// It calls refused for each request that the server answers without its handler, such as one whose header is too large, if the
// server has [ConnContext] and [ConnState] and the connection is one of HTTP/1 without TLS.
func NewListener(l net.Listener, refused func(client net.Addr, status int)) net.Listener {
	return &listener{l, stallTime, refused}
}

type listener struct {
	net.Listener
	stall   time.Duration
	refused func(client net.Addr, status int)
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	own := &connection{Conn: c, stall: l.stall, refused: l.refused}
	own.unhandled.Store(l.refused != nil)
	return own, nil
}

// ConnState is for [http.Server.ConnState].
func ConnState(c net.Conn, s http.ConnState) {
	if own, ok := c.(*connection); ok && s == http.StateIdle {
		own.unhandled.Store(true)
	}
}

// ConnContext is for [http.Server.ConnContext].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if own, ok := c.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, own)
	}
	return ctx
}

type connectionKey struct{}

// handled tells the connection of a request that the handler has it.
func handled(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.unhandled.Store(false)
	}
}

// A connection sets a deadline for each Write, and notices answers that the server gives without its handler.
type connection struct {
	net.Conn
	stall     time.Duration
	refused   func(client net.Addr, status int)
	unhandled atomic.Bool // the handler does not have the next request; what is written then is not its answer

	mu   sync.Mutex
	asks time.Time // the deadline that the server has set; zero: none
	has  time.Time // the deadline of Conn
}

// SetWriteDeadline implements [net.Conn]. The server removes the deadline after each request, which the next Write would set
// again: that of Conn stays, and each Write looks whether it will do.
func (c *connection) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks = t
	if t.IsZero() {
		return nil
	}
	c.has = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements [net.Conn].
func (c *connection) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks, c.has = t, t
	return c.Conn.SetDeadline(t)
}

// Write implements [net.Conn].
func (c *connection) Write(p []byte) (int, error) {
	if c.unhandled.Load() {
		c.unhandled.Store(false)
		if rest, ok := bytes.CutPrefix(p, []byte("HTTP/1.1 ")); ok && len(rest) >= 3 {
			if status, err := strconv.Atoi(string(rest[:3])); err == nil {
				c.refused(c.RemoteAddr(), status)
			}
		}
	}
	if err := c.allow(time.Now()); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// allow gives a Write at least stall, and at most half as much again, unless the server has set an earlier deadline. Most calls
// find that the deadline of an earlier Write will do.
func (c *connection) allow(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	until := now.Add(c.stall)
	switch {
	case !c.asks.IsZero() && c.asks.Before(until):
		until = c.asks
		if c.has.Equal(until) {
			return nil
		}
	case !c.has.Before(until) && c.has.Before(until.Add(c.stall)):
		return nil
	default:
		until = until.Add(c.stall / 2)
	}
	c.has = until
	return c.Conn.SetWriteDeadline(until)
}

// CloseWrite ends writing, as a TCP connection does: without it, both directions of a WebSocket would end at once.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
