package proxy

import (
	"bufio"
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
	for name, ask := range map[string]string{
		"known length":   "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nwhole",
		"unknown length": "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
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
				l := newPipeListener()
				server := &http.Server{Handler: NewHandler(weir.Must(pipeline.New("gateway", table)))} //nolint:gosec // in a test
				go server.Serve(l)                                                                      //nolint:errcheck // it is closed
				defer server.Close()
				c := l.dial()
				defer c.Close()
				answers := bufio.NewReader(c)
				for i := range 3 {
					_, err := io.WriteString(c, ask)
					require.NoError(t, err)
					time.Sleep(2 * lingerTime)
					resp, err := http.ReadResponse(answers, nil)
					require.NoError(t, err)
					body, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					_ = resp.Body.Close()
					assert.Equal(t, "whole", string(body), i)
				}
			})
		})
	}
}
