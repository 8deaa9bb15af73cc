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

// TestSlowReader_KeepsConnection checks that a client that takes its time to read an answer can send its next request on the
// same connection.
func TestSlowReader_KeepsConnection(t *testing.T) {
	const ask = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nwhole"
	synctest.Test(t, func(t *testing.T) {
		back := transportFunc(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			return &http.Response{
				StatusCode: http.StatusOK, ProtoMajor: 1, Header: http.Header{}, Request: r,
				Body: io.NopCloser(strings.NewReader(string(body))), ContentLength: int64(len(body)),
			}, r.Context().Err()
		})
		u := upstream.New("u", back, upstream.NewAddress(&url.URL{Scheme: "http", Host: "a"}, nil))
		table, err := NewTable(&TableOptions{Routes: []Route{{Match: "/", Upstream: u}}})
		require.NoError(t, err)
		l := serveOnPipes(t, table)
		c := l.dial()
		defer c.Close()
		answers := bufio.NewReader(c)
		for i := range 3 {
			_, err := io.WriteString(c, ask)
			require.NoError(t, err)
			time.Sleep(2 * pace.Linger)
			resp, err := http.ReadResponse(answers, nil)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, "whole", string(body), i)
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
		"a pause":           {length: 100, pause: 2 * pace.Stall, whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				back := transportFunc(func(r *http.Request) (*http.Response, error) {
					body := io.MultiReader(strings.NewReader("begin"), pause(c.pause), io.LimitReader(zeros{}, c.length-5))
					return &http.Response{
						StatusCode: http.StatusOK, ProtoMajor: 1, Header: http.Header{}, Request: r,
						Body: io.NopCloser(body), ContentLength: c.length,
					}, nil
				})
				u := upstream.New("u", back, upstream.NewAddress(&url.URL{Scheme: "http", Host: "a"}, nil))
				table, err := NewTable(&TableOptions{Routes: []Route{{Match: "/", Upstream: u}}})
				require.NoError(t, err)
				l := serveOnPipes(t, table)
				transport := &http.Transport{
					Protocols:   new(http.Protocols),
					HTTP2:       &http.HTTP2Config{MaxReceiveBufferPerStream: window},
					DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil },
				}
				transport.Protocols.SetUnencryptedHTTP2(true)
				defer transport.CloseIdleConnections()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a/", nil)
				require.NoError(t, err)
				resp, err := transport.RoundTrip(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				time.Sleep(3 * pace.Stall)
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
