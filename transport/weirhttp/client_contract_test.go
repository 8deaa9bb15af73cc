package weirhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

// contract is the contract of http.RoundTripper, a test for each clause. The tests run with http.Transport as the
// reference, and with a weirhttp.Transport around it.
type contract struct {
	http.RoundTripper
	server *httptest.Server
	http2  bool
}

var contractClauses = map[string]func(c *contract, t *testing.T){
	"RequestIsNotModified": (*contract).requestIsNotModified,
	"BodyIsClosed":         (*contract).bodyIsClosed,
	"ResponseBodyIsNotNil": (*contract).responseBodyIsNotNil,
	"Trailers":             (*contract).trailers,
	"CancelChannel":        (*contract).cancelChannel,
	"ContextEndsTheWait":   (*contract).contextEndsTheWait,
	"ContextEndsTheBody":   (*contract).contextEndsTheBody,
	"ResponseRequest":      (*contract).responseRequest,
	"CloseIdleConnections": (*contract).closeIdleConnections,
	"ConnectionsAreReused": (*contract).connectionsAreReused,
	"Upgrade":              (*contract).upgrade,
	"ContentLength":        (*contract).contentLength,
	"ClientTimeout":        (*contract).clientTimeout,
	"ReadAfterClose":       (*contract).readAfterClose,
}

func TestTransport_RoundTripperContract(t *testing.T) {
	wrapped := func(strategies ...pipeline.Strategy) func(base http.RoundTripper) http.RoundTripper {
		p := weir.Must(pipeline.New("contract", strategies...))
		return func(base http.RoundTripper) http.RoundTripper {
			return weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base}))
		}
	}
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"http.Transport": func(base http.RoundTripper) http.RoundTripper { return base },
		"empty":          wrapped(),
		"retry":          wrapped(retry.New(&retry.Options{MaxRetries: 1, Delay: -1}), timeout.New(time.Minute, nil)),
		"hedge":          wrapped(hedge.New(&hedge.Options{Delay: time.Minute})),
		"hedgeAtOnce":    wrapped(hedge.New(&hedge.Options{AtOnce: true, MaxHedges: 2})),
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http%d", name, map[bool]int{false: 1, true: 2}[http2]), func(t *testing.T) {
				server := httptest.NewUnstartedServer(http.HandlerFunc(contractHandler))
				server.Config.ErrorLog = log.New(io.Discard, "", 0) // losers of a hedge end in the handshake
				server.EnableHTTP2 = http2
				server.StartTLS()
				defer server.Close()
				shared, ok := server.Client().Transport.(*http.Transport)
				require.True(t, ok)
				shared.ExpectContinueTimeout = time.Minute
				for clause, test := range contractClauses {
					t.Run(clause, func(t *testing.T) {
						// Each clause has its own connections: those of HTTP/2 are idle some time after their last
						// stream has ended, and those of a hedge's losers are made late.
						base := shared.Clone()
						defer base.CloseIdleConnections()
						test(&contract{wrap(base), server, http2}, t)
					})
				}
			})
		}
	}
}

func contractHandler(w http.ResponseWriter, r *http.Request) {
	flush := func() { _ = http.NewResponseController(w).Flush() }
	switch r.URL.Path {
	case "/echo":
		_, _ = io.Copy(w, r.Body)
	case "/status":
		var code int
		_, _ = fmt.Sscan(r.URL.RawQuery, &code)
		w.WriteHeader(code)
	case "/part": // the rest does not come
		_, _ = io.WriteString(w, "a part")
		flush()
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // without the end of the body, which could still arrive
	case "/never":
		_, _ = io.Copy(io.Discard, r.Body) // until then the server does not notice that the client has left
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a response could still arrive
	case "/abort":
		panic(http.ErrAbortHandler)
	case "/trailer":
		w.Header().Set("Trailer", "X-Sum")
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(text)
		w.Header().Set("X-Sum", "sum "+r.Trailer.Get("X-Sum"))
	case "/length":
		_, _ = fmt.Fprintf(w, "%d %v", r.ContentLength, r.TransferEncoding)
	case "/chunked":
		flush()
		_, _ = io.WriteString(w, "some")
	case "/upgrade":
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		text, _ := io.ReadAll(rw) // until the client has no more to say
		_, _ = conn.Write(append([]byte("you said "), text...))
	}
}

func (c *contract) request(t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.server.URL+path, body)
	require.NoError(t, err)
	return r
}

func (c *contract) get(t *testing.T, path string) *http.Response {
	t.Helper()
	resp, err := c.RoundTrip(c.request(t, http.MethodGet, path, nil))
	require.NoError(t, err)
	return resp
}

// signallingBody signals when it is closed, which can be after RoundTrip.
type signallingBody struct {
	io.Reader
	closed chan struct{}
	once   sync.Once
}

func newSignallingBody(r io.Reader) *signallingBody {
	return &signallingBody{Reader: r, closed: make(chan struct{})}
}

func (b *signallingBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

func (b *signallingBody) wait(t *testing.T) {
	t.Helper()
	select {
	case <-b.closed:
	case <-time.After(time.Minute):
		t.Error("the body is not closed")
	}
}

func (c *contract) requestIsNotModified(t *testing.T) {
	for _, path := range []string{"/echo", "/status?503", "/abort"} {
		r := c.request(t, http.MethodPut, path, strings.NewReader("text"))
		r.Header["X-Mine"] = append(make([]string, 0, 4), "1")
		r.Header["X-None"] = nil
		r.Trailer = http.Header{"X-Sum": nil}
		r.TransferEncoding = []string{"chunked"}
		r.Form = map[string][]string{"a": {"b"}}
		was := r.Clone(t.Context())
		url, body := *r.URL, r.Body
		if resp, err := c.RoundTrip(r); err == nil {
			readAll(t, resp)
		}
		assert.Equal(t, url, *r.URL)
		assert.Equal(t, was.Header, r.Header)
		assert.Empty(t, r.Header["X-Mine"][:2][1])
		assert.Equal(t, was.Trailer, r.Trailer)
		assert.Equal(t, was.TransferEncoding, r.TransferEncoding)
		assert.Equal(t, was.Form, r.Form)
		assert.Equal(t, was.Host, r.Host)
		assert.True(t, body == r.Body)
		assert.Equal(t, was.Method, r.Method)
	}
}

func (c *contract) bodyIsClosed(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, change := range map[string]func(r *http.Request) *http.Request{
		"success":            func(r *http.Request) *http.Request { return r },
		"unread":             func(r *http.Request) *http.Request { r.URL.Path = "/status"; r.URL.RawQuery = "200"; return r },
		"failure":            func(r *http.Request) *http.Request { r.URL.Path = "/status"; r.URL.RawQuery = "503"; return r },
		"aborted":            func(r *http.Request) *http.Request { r.URL.Path = "/abort"; return r },
		"ended context":      func(r *http.Request) *http.Request { return r.WithContext(ended) },
		"unknown scheme":     func(r *http.Request) *http.Request { r.URL.Scheme = "ftp"; return r },
		"no URL":             func(r *http.Request) *http.Request { r.URL = nil; return r },
		"no header":          func(r *http.Request) *http.Request { r.Header = nil; return r },
		"invalid header":     func(r *http.Request) *http.Request { r.Header["a b"] = nil; return r },
		"invalid method":     func(r *http.Request) *http.Request { r.Method = "a b"; return r },
		"no host":            func(r *http.Request) *http.Request { r.URL.Host = ""; return r },
		"connection refused": func(r *http.Request) *http.Request { r.URL.Host = "127.0.0.1:1"; return r },
	} {
		t.Run(name, func(t *testing.T) {
			body := newSignallingBody(strings.NewReader("text"))
			resp, err := c.RoundTrip(change(c.request(t, http.MethodPost, "/echo", body)))
			if err == nil {
				readAll(t, resp)
			} else {
				assert.Nil(t, resp)
			}
			body.wait(t)
		})
	}
}

func (c *contract) responseBodyIsNotNil(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for _, code := range []int{200, 204, 304, 503} {
			resp, err := c.RoundTrip(c.request(t, method, fmt.Sprintf("/status?%d", code), nil))
			require.NoError(t, err)
			require.NotNil(t, resp.Body)
			assert.Empty(t, readAll(t, resp))
		}
	}
}

// trailerBody fills in the trailer when it has been read, as http.Request documents it.
type trailerBody struct {
	io.Reader
	r *http.Request
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		b.r.Trailer.Set("X-Sum", "7")
	}
	return n, err
}

func (c *contract) trailers(t *testing.T) {
	r := c.request(t, http.MethodPut, "/trailer", nil)
	r.Trailer = http.Header{"X-Sum": nil}
	r.Body, r.ContentLength = io.NopCloser(&trailerBody{strings.NewReader("text"), r}), -1
	resp, err := c.RoundTrip(r)
	require.NoError(t, err)
	assert.Equal(t, "text", readAll(t, resp))
	assert.Equal(t, http.Header{"X-Sum": {"sum 7"}}, resp.Trailer)
}

func (c *contract) cancelChannel(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		body := newSignallingBody(strings.NewReader("text"))
		r := c.request(t, method, "/never", body)
		cancel := make(chan struct{})
		r.Cancel = cancel //nolint:staticcheck // deprecated, and part of the contract
		time.AfterFunc(20*time.Millisecond, func() { close(cancel) })
		assert.Error(t, failing(t, c, r))
		body.wait(t)
		assert.NoError(t, r.Context().Err())
	}
}

func (c *contract) contextEndsTheWait(t *testing.T) {
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	body := newSignallingBody(strings.NewReader("text"))
	err := failing(t, c, c.request(t, http.MethodPost, "/never", body).WithContext(ctx))
	assert.True(t, errors.Is(err, why) || errors.Is(err, context.Canceled), "%v", err)
	body.wait(t)
}

func (c *contract) contextEndsTheBody(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := c.RoundTrip(c.request(t, http.MethodGet, "/part", nil).WithContext(ctx))
	require.NoError(t, err)
	_, err = io.ReadFull(resp.Body, make([]byte, len("a part")))
	assert.NoError(t, err)
	cancel()
	_, err = io.ReadAll(resp.Body)
	assert.ErrorIs(t, err, context.Canceled)
	assert.NoError(t, resp.Body.Close())
}

func (c *contract) responseRequest(t *testing.T) {
	for _, code := range []int{200, 503} {
		r := c.request(t, http.MethodGet, fmt.Sprintf("/status?%d", code), nil)
		resp, err := c.RoundTrip(r)
		require.NoError(t, err)
		assert.Same(t, r, resp.Request)
		readAll(t, resp)
	}
}

// connections counts the connections that are made, and those used again.
func connections(ctx context.Context) (_ context.Context, made, used *atomic.Int64) {
	made, used = new(atomic.Int64), new(atomic.Int64)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if info.Reused {
			used.Add(1)
		} else {
			made.Add(1)
		}
	}}), made, used
}

func (c *contract) closeIdleConnections(t *testing.T) {
	if c.http2 {
		t.Skip("a connection is idle some time after its last stream has ended")
	}
	client := &http.Client{Transport: c}
	for range 3 {
		ctx, made, _ := connections(t.Context())
		resp, err := c.RoundTrip(c.request(t, http.MethodPost, "/echo", strings.NewReader("x")).WithContext(ctx))
		require.NoError(t, err)
		readAll(t, resp)
		assert.EqualValues(t, 1, made.Load())
		client.CloseIdleConnections()
	}
}

// CloseIdleConnections makes http.Client find the method of the transport.
func (c *contract) CloseIdleConnections() {
	if idle, ok := c.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

func (c *contract) connectionsAreReused(t *testing.T) {
	ctx, made, used := connections(t.Context())
	for i := range 5 {
		resp, err := c.RoundTrip(c.request(t, http.MethodPost, "/echo", strings.NewReader("x")).WithContext(ctx))
		require.NoError(t, err)
		readAll(t, resp)
		assert.EqualValues(t, 1, made.Load())
		assert.EqualValues(t, i, used.Load())
	}
}

func (c *contract) upgrade(t *testing.T) {
	if c.http2 {
		t.Skip("there are no upgrades in HTTP/2")
	}
	server := httptest.NewServer(http.HandlerFunc(contractHandler)) // TCP: only that can be closed by halves
	defer server.Close()
	for _, half := range []bool{true, false} {
		r := c.request(t, http.MethodGet, "/upgrade", nil)
		r.Method = http.MethodPost // which no hedge sends twice
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "echo")
		r.URL.Scheme, r.URL.Host = "http", server.Listener.Addr().String()
		resp, err := c.RoundTrip(r) //nolint:bodyclose // closed as conn
		require.NoError(t, err)
		assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		conn, ok := resp.Body.(interface {
			io.ReadWriteCloser
			CloseWrite() error
		})
		require.True(t, ok, "%T", resp.Body)
		_, err = io.WriteString(conn, "hello")
		require.NoError(t, err)
		if half {
			require.NoError(t, conn.CloseWrite())
			text, err := io.ReadAll(conn)
			require.NoError(t, err)
			assert.Equal(t, "you said hello", string(text))
		}
		assert.NoError(t, conn.Close())
		_, err = conn.Write([]byte("more"))
		assert.ErrorIs(t, err, net.ErrClosed)
	}
}

func (c *contract) contentLength(t *testing.T) {
	for path, want := range map[string]int64{"/status?200": 0, "/chunked": -1, "/length": 4} {
		resp := c.get(t, path)
		assert.Equal(t, want, resp.ContentLength, path)
		readAll(t, resp)
	}
	for _, known := range []bool{true, false} {
		r := c.request(t, http.MethodPut, "/length", strings.NewReader("text"))
		want := "4 []"
		if !known {
			r.ContentLength, want = -1, "-1 [chunked]"
			if c.http2 {
				want = "-1 []"
			}
		}
		resp, err := c.RoundTrip(r)
		require.NoError(t, err)
		assert.Equal(t, want, readAll(t, resp))
	}
}

func (c *contract) clientTimeout(t *testing.T) {
	client := &http.Client{Transport: c, Timeout: 50 * time.Millisecond}
	for _, path := range []string{"/never", "/part"} {
		resp, err := client.Get(c.server.URL + path)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		timedOut, ok := errors.AsType[net.Error](err)
		assert.True(t, ok && timedOut.Timeout())
	}
}

func (c *contract) readAfterClose(t *testing.T) {
	resp := c.get(t, "/part")
	_, err := bufio.NewReader(resp.Body).ReadByte()
	assert.NoError(t, err)
	assert.NoError(t, resp.Body.Close())
	_, err = resp.Body.Read(make([]byte, 1))
	assert.Error(t, err)
	assert.NoError(t, resp.Body.Close())
}
