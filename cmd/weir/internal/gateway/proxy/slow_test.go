package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/tools/testserver"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/paced"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// serveOnPipes serves a gateway until the test ends, over HTTP/1 and HTTP/2 without TLS.
func serveOnPipes(t *testing.T, table *Table) *testserver.Pipes {
	server := &http.Server{Handler: NewHandler(weir.Must(pipeline.New("gateway", table)), nil), Protocols: new(http.Protocols)} //nolint:gosec // in a test
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return testserver.ServePipes(t, server)
}

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
			c := serveOnPipes(t, echoTable(t)).Dial()
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

func http2To(l *testserver.Pipes, window int) *http.Transport {
	transport := &http.Transport{
		Protocols:   new(http.Protocols),
		HTTP2:       &http.HTTP2Config{MaxReceiveBufferPerStream: window},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return l.Dial(), nil },
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
		}))).Dial()
		defer c.Close()
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		began := time.Now()
		<-body.closed
		assert.Equal(t, paced.Stall, time.Since(began))
	})
}

// TestSlowReader_Interim checks that a client does not hold its request for long either if it takes nothing of a 1xx answer: the one that
// net/http sends when the body is wanted, and those of the upstream.
func TestSlowReader_Interim(t *testing.T) {
	read := func(r *http.Request) { _, _ = r.Body.Read(make([]byte, 1)) }
	for name, do := range map[string]func(r *http.Request){
		"Content-Length: 5\r\nExpect: 100-continue":          read,
		"Transfer-Encoding: chunked\r\nExpect: 100-continue": read,
		"Accept: text/html": func(r *http.Request) {
			_ = httptrace.ContextClientTrace(r.Context()).Got1xxResponse(http.StatusEarlyHints, textproto.MIMEHeader{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				returned := make(chan time.Time)
				c := serveOnPipes(t, tableTo(t, transportFunc(func(r *http.Request) (*http.Response, error) {
					defer func() { returned <- time.Now() }()
					go do(r)
					<-r.Context().Done()
					return nil, r.Context().Err()
				}))).Dial()
				defer c.Close()
				began := time.Now()
				_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+name+"\r\n\r\n")
				require.NoError(t, err)
				select {
				case at := <-returned:
					assert.Equal(t, paced.Stall, at.Sub(began))
				case <-time.After(time.Hour):
					t.Error("the client still holds the request")
					_ = c.Close()
					<-returned
				}
			})
		})
	}
}

// TestStream_BeginsLate checks that a stream whose client was told to go on can be silent at its beginning, as at any time.
func TestStream_BeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serveOnPipes(t, echoTable(t)).Dial()
		defer c.Close()
		_, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		answers := bufio.NewReader(c)
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusContinue, resp.StatusCode)
		_ = resp.Body.Close()
		time.Sleep(3 * paced.Stall)
		_, err = io.WriteString(c, "5\r\nwhole\r\n0\r\n\r\n")
		require.NoError(t, err)
		resp, err = http.ReadResponse(answers, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, "whole", string(body))
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
		c := serveOnPipes(t, echoTable(t)).Dial()
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
