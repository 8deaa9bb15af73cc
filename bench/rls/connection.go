package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A connection speaks as much of gRPC over HTTP/2 as the load needs, for little processor time: as a proxy does, and unlike
// the client of grpc-go, which takes about as much as the server that is measured.
type connection struct {
	conn    net.Conn
	timeout time.Duration
	ended   chan struct{} // closed when the goroutine of read has returned

	writing sync.Mutex // of frames
	headers []byte     // the header block of every request but the first one: all fields are in the table of the connection
	buf     bytes.Buffer
	framer  *http2.Framer // writes to buf

	mu      sync.Mutex
	next    uint32 // the number of the next stream
	streams map[uint32]*stream
	err     error // why the connection has ended
}

// A stream is a request without its answer.
type stream struct {
	answered func([]byte, error)
	data     []byte
	status   string // grpc-status
}

// maxStreams bounds the requests that a connection has under way. With more, those of a usual server could be refused, or
// wait for its window.
const maxStreams = 900

var errTooMany = fmt.Errorf("more than %d requests are under way on a connection", maxStreams)

// connect opens a connection, and waits for the answer to a first request.
func connect(ctx context.Context, target string, timeout time.Duration, message []byte) (*connection, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	c := &connection{conn: conn, timeout: timeout, ended: make(chan struct{}), next: 1, streams: make(map[uint32]*stream)}
	c.framer = http2.NewFramer(&c.buf, nil)
	if err := c.start(target, message); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *connection) start(target string, message []byte) error {
	_ = c.conn.SetDeadline(time.Now().Add(10 * time.Second))
	c.buf.WriteString(http2.ClientPreface)
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	go c.read()
	encode := encoder(target, c.timeout)
	c.headers = encode()
	first := make(chan error, 1)
	c.send(message, func(_ []byte, err error) { first <- err })
	c.headers = encode()
	err := <-first
	_ = c.conn.SetDeadline(time.Time{})
	return err
}

// encoder returns the function that makes the header block of a request.
func encoder(authority string, timeout time.Duration) func() []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	return func() []byte {
		block.Reset()
		for _, f := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName},
			{":authority", authority}, {"content-type", "application/grpc"}, {"te", "trailers"},
			{"grpc-timeout", strconv.FormatInt(timeout.Milliseconds(), 10) + "m"},
		} {
			_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
		}
		return bytes.Clone(block.Bytes())
	}
}

// send sends a request, and does not wait for the answer.
func (c *connection) send(message []byte, answered func([]byte, error)) {
	c.writing.Lock()
	defer c.writing.Unlock()
	id, err := c.add(answered)
	if err != nil {
		answered(nil, err)
		return
	}
	var prefix [5]byte // not compressed, and the length
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(message)))
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.headers, EndHeaders: true})
	_ = c.framer.WriteData(id, true, append(prefix[:], message...))
	if err := c.flush(); err != nil {
		c.end(err)
	}
}

// add returns the number of a new stream.
func (c *connection) add(answered func([]byte, error)) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return 0, c.err
	case len(c.streams) >= maxStreams:
		return 0, errTooMany
	}
	id := c.next
	c.next += 2
	c.streams[id] = &stream{answered: answered}
	return id, nil
}

// flush sends the frames in buf. The caller holds writing.
func (c *connection) flush() error {
	_, err := c.conn.Write(c.buf.Bytes())
	c.buf.Reset()
	return err
}

// end fails all requests that are under way.
func (c *connection) end(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	streams := c.streams
	c.streams = make(map[uint32]*stream)
	c.mu.Unlock()
	for _, s := range streams {
		s.answered(nil, err)
	}
}

// close ends the connection, and waits for its goroutine.
func (c *connection) close() {
	_ = c.conn.Close()
	<-c.ended
}

// read reads the answers until the connection ends.
func (c *connection) read() {
	defer close(c.ended)
	framer := http2.NewFramer(nil, bufio.NewReader(c.conn))
	framer.SetReuseFrames()
	var fields []hpack.HeaderField
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) { fields = append(fields, f) })
	consumed := uint32(0) // of the window of the connection, since the last update
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			c.end(err)
			return
		}
		var reply func() error // a frame that the server waits for
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				reply = c.framer.WriteSettingsAck
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				reply = func() error { return c.framer.WritePing(true, f.Data) }
			}
		case *http2.GoAwayFrame:
			err = fmt.Errorf("the server ends the connection: %v", f.ErrCode)
		case *http2.RSTStreamFrame:
			c.finish(f.StreamID, fmt.Errorf("the server ends the request: %v", f.ErrCode))
		case *http2.DataFrame:
			c.received(f.StreamID, f.Data(), f.StreamEnded())
			if consumed += f.Length; consumed >= 1<<14 {
				n := consumed
				consumed = 0
				reply = func() error { return c.framer.WriteWindowUpdate(0, n) }
			}
		case *http2.HeadersFrame:
			if !f.HeadersEnded() {
				err = errors.New("the header of an answer is in several frames")
				break
			}
			fields = fields[:0]
			if _, err = decoder.Write(f.HeaderBlockFragment()); err == nil {
				err = decoder.Close()
			}
			c.receivedFields(f.StreamID, fields, f.StreamEnded())
		}
		if reply != nil && err == nil {
			c.writing.Lock()
			_ = reply() // to memory
			err = c.flush()
			c.writing.Unlock()
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// received adds to the answer of a stream.
func (c *connection) received(id uint32, data []byte, ended bool) {
	c.mu.Lock()
	if s := c.streams[id]; s != nil {
		s.data = append(s.data, data...)
	}
	c.mu.Unlock()
	if ended {
		c.finish(id, errors.New("the answer has no trailer"))
	}
}

// receivedFields notes the status of a stream.
func (c *connection) receivedFields(id uint32, fields []hpack.HeaderField, ended bool) {
	c.mu.Lock()
	s := c.streams[id]
	c.mu.Unlock()
	if s == nil {
		return
	}
	text := ""
	for _, f := range fields {
		switch f.Name {
		case "grpc-status":
			s.status = f.Value
		case "grpc-message":
			text = f.Value
		}
	}
	if !ended {
		return
	}
	var err error
	if s.status != "0" {
		err = fmt.Errorf("gRPC status %q: %s", s.status, text)
	}
	c.finish(id, err)
}

// finish answers a request.
func (c *connection) finish(id uint32, err error) {
	c.mu.Lock()
	s := c.streams[id]
	delete(c.streams, id)
	c.mu.Unlock()
	if s == nil {
		return
	}
	const prefix = 5
	if err == nil && (len(s.data) < prefix || s.data[0] != 0 || int(binary.BigEndian.Uint32(s.data[1:])) != len(s.data)-prefix) {
		err = errors.New("the answer is not one message without compression")
	}
	if err != nil {
		s.answered(nil, err)
		return
	}
	s.answered(s.data[prefix:], nil)
}
