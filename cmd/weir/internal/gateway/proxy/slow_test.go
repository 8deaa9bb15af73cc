package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/paced"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// A pipeListener accepts one end of each pipe that dial makes, so that a server runs in a bubble of synctest.
type pipeListener struct {
	accept chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{make(chan net.Conn), make(chan struct{})}
}

// serveOnPipes serves a gateway until the test ends, over HTTP/1 and HTTP/2 without TLS.
func serveOnPipes(t *testing.T, table *Table) *pipeListener {
	server := &http.Server{Handler: NewHandler(weir.Must(pipeline.New("gateway", table)), nil), Protocols: new(http.Protocols)} //nolint:gosec // in a test
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	l := newPipeListener()
	go server.Serve(l)
	t.Cleanup(func() { _ = server.Close() })
	return l
}

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.accept <- server
	return client
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

type transportFunc func(r *http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// echoTable has one route to a server that reads the body of each request and answers with it.
func echoTable(t *testing.T) *Table {
	back := transportFunc(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		return answerOf(r, strings.NewReader(string(body)), int64(len(body))), r.Context().Err()
	})
	return tableTo(t, back)
}

func tableTo(t *testing.T, back http.RoundTripper) *Table {
	u := upstream.New("u", back, upstream.NewAddress(&url.URL{Scheme: "http", Host: "a"}, nil))
	table, err := NewTable(&TableOptions{Routes: []Route{{Match: "/", Upstream: u}}})
	require.NoError(t, err)
	return table
}

func answerOf(r *http.Request, body io.Reader, length int64) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, Header: http.Header{}, Request: r, Body: io.NopCloser(body), ContentLength: length,
	}
}

// TestSlowBody checks that a client that stops sending holds its request for as long as the pace allows, and its connection no longer: what
// comes later is no request.
func TestSlowBody(t *testing.T) {
	const post = "POST /a HTTP/1.1\r\nHost: a\r\n"
	for text, want := range map[string]struct {
		status int
		after  time.Duration
	}{
		post + "Content-Length: 10\r\n\r\nhalf": {http.StatusRequestTimeout, paced.Stall},
		// Refused before the body was read.
		"POST /../a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n":                         {http.StatusBadRequest, paced.Linger},
		"POST /../a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhalf":                     {http.StatusBadRequest, paced.Linger},
		"POST /../a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n": {http.StatusBadRequest, paced.Linger},
		"POST /../a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha":         {http.StatusBadRequest, paced.Linger},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := serveOnPipes(t, echoTable(t)).dial()
			defer c.Close()
			began := time.Now()
			go io.WriteString(c, text)
			answers := bufio.NewReader(c)
			resp, err := http.ReadResponse(answers, nil)
			require.NoError(t, err, text)
			assert.Equal(t, want.status, resp.StatusCode, text)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			_, err = answers.ReadByte()
			require.ErrorIs(t, err, io.EOF, text)
			assert.LessOrEqual(t, time.Since(began), want.after+time.Second, text) // net/http lingers for half a second
		})
	}
}

// TestSlowBody_HTTP2 checks that a stream of HTTP/2 is held no longer than a connection of HTTP/1.
func TestSlowBody_HTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := http2To(serveOnPipes(t, echoTable(t)), 0)
		defer transport.CloseIdleConnections()
		stalled, end := io.Pipe()
		for _, want := range []int{http.StatusRequestTimeout, http.StatusOK} {
			var body io.Reader = strings.NewReader("whole")
			if want == http.StatusRequestTimeout {
				body = io.MultiReader(strings.NewReader("half"), stalled)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://a/", body)
			require.NoError(t, err)
			r.ContentLength = 5
			resp, err := transport.RoundTrip(r)
			require.NoError(t, err)
			assert.Equal(t, want, resp.StatusCode)
			_ = end.Close() // closing the response waits for the body of the request
			_ = resp.Body.Close()
		}
	})
}

func http2To(l *pipeListener, window int) *http.Transport {
	transport := &http.Transport{
		Protocols:   new(http.Protocols),
		HTTP2:       &http.HTTP2Config{MaxReceiveBufferPerStream: window},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil },
	}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return transport
}

// TestSlowReader checks that a client that does not read its answer does not hold its request for long.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &closing{Reader: zeros{}, closed: make(chan struct{})}
		c := serveOnPipes(t, tableTo(t, transportFunc(func(r *http.Request) (*http.Response, error) {
			resp := answerOf(r, nil, 1<<40) // of a known length: a mutex of the ReverseProxy would stop the fake time
			resp.Body = body
			return resp, nil
		}))).dial()
		defer c.Close()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		began := time.Now()
		<-body.closed
		assert.Equal(t, paced.Stall, time.Since(began))
	})
}

type closing struct {
	io.Reader
	closed chan struct{}
}

func (c *closing) Close() error {
	close(c.closed)
	return nil
}

// TestSlowReader_KeepsConnection checks that a client that takes its time to read an answer can send its next request on the
// same connection.
func TestSlowReader_KeepsConnection(t *testing.T) {
	const ask = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nwhole"
	synctest.Test(t, func(t *testing.T) {
		c := serveOnPipes(t, echoTable(t)).dial()
		defer c.Close()
		answers := bufio.NewReader(c)
		for i := range 3 {
			_, err := io.WriteString(c, ask)
			require.NoError(t, err)
			time.Sleep(2 * paced.Linger)
			resp, err := http.ReadResponse(answers, nil)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, "whole", string(body), i)
			time.Sleep(paced.Stall + time.Second) // also the deadline of the last write is gone
		}
	})
}

// TestSlowReader_HTTP2 checks that a client that does not open the window of a stream does not hold its request for long: in the
// handler, and for the end of an answer that net/http sends after the handler. An answer that pauses stays.
func TestSlowReader_HTTP2(t *testing.T) {
	const window = 2 * bufferSize
	for name, c := range map[string]struct {
		length int64
		pause  time.Duration
		whole  bool
	}{
		"in the handler":    {length: 2 * window},
		"after the handler": {length: window + 100},
		"a pause":           {length: 100, pause: 2 * paced.Stall, whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := http2To(serveOnPipes(t, tableTo(t, transportFunc(func(r *http.Request) (*http.Response, error) {
					return answerOf(r, io.MultiReader(strings.NewReader("begin"), pause(c.pause), io.LimitReader(zeros{}, c.length-5)), c.length), nil
				}))), window)
				defer transport.CloseIdleConnections()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", nil)
				require.NoError(t, err)
				resp, err := transport.RoundTrip(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				time.Sleep(3 * paced.Stall)
				n, err := io.Copy(io.Discard, resp.Body)
				if c.whole {
					assert.NoError(t, err)
					assert.Equal(t, c.length, n)
				} else {
					assert.ErrorContains(t, err, "INTERNAL_ERROR")
				}
			})
		})
	}
}

// A pause is a reader that ends after a time.
type pause time.Duration

func (p pause) Read([]byte) (int, error) {
	time.Sleep(time.Duration(p))
	return 0, io.EOF
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
