package upstream

import (
	"bufio"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/tools/testserver"
)

// A transportFunc is a base of an Upstream.
type transportFunc func(r *http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func newUpstream(t *testing.T, base transportFunc, urls ...string) *Upstream {
	t.Helper()
	addresses := make([]*Address, len(urls))
	for i, text := range urls {
		u, err := url.Parse(text)
		require.NoError(t, err)
		addresses[i] = NewAddress(u, weir.Must(pipeline.New(u.Host, circuitbreaker.New(&circuitbreaker.Options{
			ConsecutiveFailures: 1, BreakDuration: time.Hour,
		}))))
	}
	return New("test", base, addresses...)
}

// within is a context with an Exchange.
type within struct {
	context.Context
	exchange Exchange
}

func (w *within) Value(key any) any {
	if key == (Key{}) {
		return &w.exchange
	}
	return w.Context.Value(key)
}

// send sends a request and closes the answer.
func send(u *Upstream, r *http.Request) error {
	resp, err := u.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func newRequest(t *testing.T, ctx context.Context, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://test/a%2Fb?c", body)
	require.NoError(t, err)
	return r
}

// TestUpstream_LeastRunning checks that requests go where fewer run: with two addresses, the other one is always known.
func TestUpstream_LeastRunning(t *testing.T) {
	var hosts []string
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		hosts = append(hosts, r.URL.Host)
		return answer(r)
	}, "http://a", "http://b")
	var all []*within
	for range 100 {
		x := &within{Context: t.Context()}
		all = append(all, x)
		err := send(u, newRequest(t, x, nil))
		require.NoError(t, err)
	}
	assert.Equal(t, 50, strings.Count(strings.Join(hosts, ""), "a"))
	for _, a := range u.addresses {
		assert.EqualValues(t, 50, a.running.Load(), "they run until they end, not until the answer begins")
	}
	for _, x := range all {
		x.exchange.End()
	}
	for _, a := range u.addresses {
		assert.Zero(t, a.running.Load())
	}
}

// TestUpstream_Attempts checks that the attempts of a request go to different addresses, as long as there are any.
func TestUpstream_Attempts(t *testing.T) {
	u := newUpstream(t, answer, "http://a", "http://b", "http://c")
	for range 20 {
		x := &within{Context: t.Context()}
		seen := map[string]int{}
		for range 3 {
			err := send(u, newRequest(t, x, nil))
			require.NoError(t, err)
			_, address := x.exchange.Attempts()
			seen[address]++
		}
		assert.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1}, seen)
		err := send(u, newRequest(t, x, nil))
		require.NoError(t, err)
		n, _ := x.exchange.Attempts()
		assert.Equal(t, 4, n)
		x.exchange.End()
	}
}

func TestUpstream_Unreachable(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	var sent string
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		if r.URL.Host == "down" {
			_ = r.Body.Close() // as http.Transport does
			return nil, dial
		}
		body, err := io.ReadAll(r.Body)
		sent = string(body)
		require.NoError(t, err)
		return answer(r)
	}, "http://down", "http://up/base")
	down := u.addresses[0]
	for range 10 {
		x := &within{Context: t.Context()}
		r := newRequest(t, x, strings.NewReader("body"))
		r.GetBody = nil
		err := send(u, r)
		require.NoError(t, err)
		assert.Equal(t, "body", sent)
		n, address := x.exchange.Attempts()
		assert.Equal(t, "up", address)
		assert.LessOrEqual(t, n, 2)
		x.exchange.End()
	}
	assert.Zero(t, down.running.Load())

	alone := newUpstream(t, func(*http.Request) (*http.Response, error) { return nil, dial }, "http://down")
	for range 3 {
		err := send(alone, newRequest(t, t.Context(), nil))
		require.ErrorIs(t, err, dial)
	}
}

// TestUpstream_OpenCircuits checks that circuits decide only about the order of the addresses: if all are open, each request is
// still sent.
func TestUpstream_OpenCircuits(t *testing.T) {
	down := map[string]bool{"a": true, "b": true, "c": true}
	var hosts []string
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		hosts = append(hosts, r.URL.Host)
		if down[r.URL.Host] {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}
		return answer(r)
	}, "http://a", "http://b", "http://c")
	for range 3 { // each request opens the circuits that it meets
		x := &within{Context: t.Context()}
		hosts = nil
		require.Error(t, send(u, newRequest(t, x, nil)))
		assert.ElementsMatch(t, []string{"a", "b", "c"}, hosts, "each address is asked once")
		n, address := x.exchange.Attempts()
		assert.Equal(t, 3, n)
		assert.Equal(t, hosts[2], address)
	}
	down["b"] = false
	for range 20 {
		require.NoError(t, send(u, newRequest(t, t.Context(), nil)))
		assert.Equal(t, "b", hosts[len(hosts)-1])
	}
	for _, a := range u.addresses {
		assert.Zero(t, a.running.Load())
	}
}

// TestUpstream_ClosedBeforeOpen checks that an address whose circuit is open is asked only if no other one can be.
func TestUpstream_ClosedBeforeOpen(t *testing.T) {
	hosts := map[string]int{}
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		hosts[r.URL.Host]++
		if r.URL.Host == "breaks" {
			if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
				trace.GotConn(httptrace.GotConnInfo{}) // a new connection
			}
			return nil, errors.New("broken")
		}
		return answer(r)
	}, "http://breaks", "http://works")
	for range 50 {
		_ = send(u, newRequest(t, t.Context(), nil))
	}
	assert.Equal(t, 1, hosts["breaks"])
	assert.GreaterOrEqual(t, hosts["works"], 49)
}

// TestUpstream_Judged checks which failures open the circuit of an address that a second one could stand in for.
func TestUpstream_Judged(t *testing.T) {
	request := func(t *testing.T, ctx context.Context, path string) *http.Request {
		r := newRequest(t, ctx, nil)
		r.URL.Path, r.URL.RawPath = path, ""
		return r
	}
	for name, tt := range map[string]struct {
		used, opens bool // the connections were used before
		o           TransportOptions
		ask         func(t *testing.T, u *Upstream)
	}{
		"a route that is impatient": {ask: func(t *testing.T, u *Upstream) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, send(u, request(t, ctx, "/slow")), context.DeadlineExceeded)
		}},
		"max_connections are in use": {o: TransportOptions{MaxConnections: 1}, ask: func(t *testing.T, u *Upstream) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			for range u.addresses {
				r := request(t, ctx, "/slow")
				go func() { _ = send(u, r) }()
				synctest.Wait()
			}
			impatient, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, send(u, request(t, impatient, "/")), context.DeadlineExceeded)
			<-ctx.Done()
			synctest.Wait()
		}},
		"a used connection is closed": {used: true, ask: func(t *testing.T, u *Upstream) {
			require.Error(t, send(u, request(t, t.Context(), "/panic")))
		}},
		"a new connection is closed": {opens: true, ask: func(t *testing.T, u *Upstream) {
			require.Error(t, send(u, request(t, t.Context(), "/panic")))
		}},
		"response_header_timeout": {used: true, opens: true, o: TransportOptions{ResponseHeaderTimeout: time.Second}, ask: func(t *testing.T, u *Upstream) {
			require.Error(t, send(u, request(t, t.Context(), "/slow")))
		}},
		"a server that cannot be reached": {opens: true, ask: func(t *testing.T, u *Upstream) {
			u.base.(*Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				httptrace.ContextClientTrace(ctx).ConnectStart("tcp", "a:80") // as a net.Dialer does
				<-ctx.Done()
				return nil, ctx.Err()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorIs(t, send(u, request(t, ctx, "/")), context.DeadlineExceeded)
			time.Sleep(time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := pipedUpstream(t, tt.o)
				rounds := 1
				if !tt.opens {
					rounds = 10
				}
				for range rounds {
					if tt.used {
						x := &within{Context: t.Context()}
						for range u.addresses {
							require.NoError(t, send(u, request(t, x, "/")))
						}
						x.exchange.End()
					}
					tt.ask(t, u)
				}
				want, open := 0, 0
				if tt.opens {
					want = 1
				}
				for _, p := range u.Circuits() {
					for _, s := range p.Strategies() {
						if s.(*circuitbreaker.Strategy).State() == circuitbreaker.Open {
							open++
						}
					}
				}
				assert.Equal(t, want, open)
			})
		})
	}
}

// pipedUpstream returns an upstream with two servers, for the fake time of a test.
func pipedUpstream(t *testing.T, o TransportOptions) *Upstream {
	t.Helper()
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			<-r.Context().Done()
		case "/panic":
			panic(http.ErrAbortHandler)
		}
	})
	base, err := NewTransport(o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = base.Close() })
	servers := testserver.ServePipes(t, &http.Server{Handler: h}) //nolint:gosec // in a test
	base.DialContext = func(context.Context, string, string) (net.Conn, error) { return servers.Dial(), nil }
	return New("test", base, newUpstream(t, nil, "http://a", "http://b").addresses...)
}

// TestUpstream_ResendsBody checks that a body of which only the beginning was read, into the buffer of net/http, goes on to another
// connection as a whole, and that a body of which more was read does not.
func TestUpstream_ResendsBody(t *testing.T) {
	text := strings.Repeat("weir", maxKept)
	for read, again := range map[int]bool{0: true, 1: true, maxKept: true, maxKept + 1: false} {
		u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
			_, err := io.ReadFull(r.Body, make([]byte, read))
			require.NoError(t, err)
			require.NoError(t, r.Body.Close())
			body, err := r.GetBody()
			if !again {
				require.ErrorIs(t, err, errRead)
				return answer(r)
			}
			require.NoError(t, err)
			got, err := io.ReadAll(body)
			require.NoError(t, err)
			assert.Equal(t, text, string(got))
			return answer(r)
		}, "http://a")
		r := newRequest(t, t.Context(), strings.NewReader(text))
		r.GetBody = nil
		require.NoError(t, send(u, r))
	}
}

// A lateConn tells its reader of the end of the connection only when something is written after it: as if the goroutine that reads had
// to wait for a processor.
type lateConn struct {
	*net.TCPConn
	tell func() // closes told
	told chan struct{}
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if err != nil {
		<-c.told
	}
	return n, err
}

func (c *lateConn) Write(p []byte) (int, error) {
	if ended(c.TCPConn) {
		defer c.tell()
	}
	return c.TCPConn.Write(p)
}

func (c *lateConn) Close() error {
	defer c.tell()
	return c.TCPConn.Close()
}

// listening starts a server that handles each connection, and then closes it.
func listening(t *testing.T, handle func(c net.Conn)) *url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return &url.URL{Scheme: "http", Host: l.Addr().String()}
}

// answerNext reads a request with its body, and returns its method and length.
func answerNext(b *bufio.Reader, c net.Conn) (method string, n int64, err error) {
	r, err := http.ReadRequest(b)
	if err != nil {
		return "", 0, err
	}
	if n, err = io.Copy(io.Discard, r.Body); err == nil && c != nil {
		_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
	return r.Method, n, err
}

// TestUpstream_ServerHasClosed has a server that closes each connection after its first answer, which net/http notices late: no
// request is written to such a connection.
func TestUpstream_ServerHasClosed(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "plan9" {
		t.Skip("whether a connection has ended is not known there")
	}
	var mu sync.Mutex
	got := map[int64]int{}
	server := listening(t, func(c net.Conn) {
		if _, n, err := answerNext(bufio.NewReader(c), c); err == nil {
			mu.Lock()
			defer mu.Unlock()
			got[n]++
		}
	})
	var last *lateConn
	u := lateUpstream(t, server, func(c *lateConn, err error) { last = c })
	for _, size := range []int64{0, 4, 64 << 10} {
		for range 3 {
			r := newRequest(t, t.Context(), struct{ io.Reader }{strings.NewReader(strings.Repeat("a", int(size)))})
			if r.ContentLength = size; size == 0 {
				r.Body = nil
			}
			require.NoError(t, send(u, r), size)
			require.Eventually(t, func() bool { return ended(last.TCPConn) }, time.Minute, time.Millisecond)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, map[int64]int{0: 3, 4: 3, 64 << 10: 3}, got, "each is sent once")
}

// lateUpstream returns an upstream whose connections are late. dialed gets each of them.
func lateUpstream(t *testing.T, server *url.URL, dialed func(c *lateConn, err error)) *Upstream {
	t.Helper()
	base, err := NewTransport(TransportOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = base.Close() })
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			dialed(nil, err)
			return nil, err
		}
		told := make(chan struct{})
		late := &lateConn{c.(*net.TCPConn), sync.OnceFunc(func() { close(told) }), told}
		dialed(late, nil)
		return late, nil
	}
	return New("test", base, NewAddress(server, nil))
}

// TestUpstream_ServerHasGone has a server that closes a connection and then refuses all others: after the connection that waited for
// the request, a request tries to connect once.
func TestUpstream_ServerHasGone(t *testing.T) {
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	var last *lateConn
	var refused atomic.Int64
	u := lateUpstream(t, at, func(c *lateConn, err error) {
		if last = c; err != nil && refused.Add(1) == 100 {
			close(gone)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-gone: // the request would go on for as long as the client waits
			cancel()
		case <-ctx.Done():
		}
	}()
	require.NoError(t, send(u, newRequest(t, ctx, nil)))
	waiting := last
	server.Close()
	require.Eventually(t, func() bool { return ended(waiting.TCPConn) }, time.Minute, time.Millisecond)
	err = send(u, newRequest(t, ctx, nil))
	assert.True(t, NotSent(err), "%v", err)
	assert.EqualValues(t, 1, refused.Load())
}

// TestUpstream_NotRepeated checks that a request of which something may have been sent is not sent again.
func TestUpstream_NotRepeated(t *testing.T) {
	calls := 0
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		calls++
		_, _ = r.Body.Read(make([]byte, 1))
		return nil, &net.OpError{Op: "read", Err: errors.New("reset")}
	}, "http://a", "http://b")
	err := send(u, newRequest(t, t.Context(), strings.NewReader("body")))
	require.Error(t, err)
	assert.Equal(t, 1, calls)
}

// TestUpstream_BodyOfClient checks that a body that cannot be read opens no circuit.
func TestUpstream_BodyOfClient(t *testing.T) {
	broken := errors.New("broken")
	u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
		_, err := io.ReadAll(r.Body)
		return nil, err
	}, "http://a")
	for range 3 {
		err := send(u, newRequest(t, t.Context(), io.MultiReader(strings.NewReader("a"), &failing{broken})))
		require.ErrorIs(t, err, broken)
		_, ok := errors.AsType[*ClientError](err)
		assert.True(t, ok)
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestAddress_Locate(t *testing.T) {
	for base, want := range map[string]string{
		"http://h":         "http://h/a%2Fb?c",
		"https://h:1/":     "https://h:1/a%2Fb?c",
		"http://h/x/y":     "http://h/x/y/a%2Fb?c",
		"http://h/x%2Fy/":  "http://h/x%2Fy/a%2Fb?c",
		"http://[::1]:1/x": "http://[::1]:1/x/a%2Fb?c",
	} {
		u := newUpstream(t, func(r *http.Request) (*http.Response, error) {
			assert.Equal(t, want, r.URL.String())
			return answer(r)
		}, base)
		err := send(u, newRequest(t, t.Context(), nil))
		require.NoError(t, err)
	}
}

// TestExchange_LateConcurrentSafe has attempts that return after the request has ended, as those of a hedge can.
func TestExchange_LateConcurrentSafe(t *testing.T) {
	u := newUpstream(t, answer, "http://a", "http://b")
	for range 50 {
		x := &within{Context: t.Context()}
		var attempts sync.WaitGroup
		for range 3 {
			attempts.Go(func() { _ = send(u, newRequest(t, x, nil)) })
		}
		x.exchange.End()
		attempts.Wait()
	}
	for _, a := range u.addresses {
		assert.Zero(t, a.running.Load())
	}
}

// TestTransport_TLS checks that a request goes on to the next address if the handshake of TLS fails, or takes too long.
func TestTransport_TLS(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	up.EnableHTTP2 = true
	up.StartTLS()
	defer up.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	for _, down := range []string{"https://" + silent.Addr().String(), strings.Replace(plain.URL, "http:", "https:", 1)} {
		base, err := NewTransport(TransportOptions{DialTimeout: time.Second})
		require.NoError(t, err)
		base.TLSClientConfig.RootCAs = x509.NewCertPool()
		base.TLSClientConfig.RootCAs.AddCert(up.Certificate())
		u := New("test", base, newUpstream(t, nil, down, up.URL).addresses...)
		for range 2 {
			resp, err := u.RoundTrip(newRequest(t, t.Context(), strings.NewReader("body")))
			require.NoError(t, err, down)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, "HTTP/2.0", string(body))
		}
		_ = base.Close()
	}
}

// A silencedConn can lose its server without a word.
type silencedConn struct {
	net.Conn
	gone   *atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *silencedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.gone.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *silencedConn) Write(p []byte) (int, error) {
	if c.gone.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *silencedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// TestTransport_DeadConnection checks that requests over HTTP/2 do not go on failing on a connection whose server has gone
// without closing it.
func TestTransport_DeadConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone []*atomic.Bool
		s := &http.Server{Protocols: new(http.Protocols), Handler: http.NotFoundHandler()} //nolint:gosec // in a test
		s.Protocols.SetUnencryptedHTTP2(true)
		servers := testserver.ServePipes(t, s)
		base, err := NewTransport(TransportOptions{H2C: true})
		require.NoError(t, err)
		defer base.Close()
		base.DialContext = func(context.Context, string, string) (net.Conn, error) {
			gone = append(gone, new(atomic.Bool))
			return &silencedConn{Conn: servers.Dial(), gone: gone[len(gone)-1], closed: make(chan struct{})}, nil
		}
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://a/", nil)
			require.NoError(t, err)
			resp, err := base.RoundTrip(r)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}
		require.NoError(t, ask())
		gone[0].Store(true)
		require.ErrorIs(t, ask(), context.DeadlineExceeded)
		time.Sleep(pingAfter + pingTimeout)
		require.NoError(t, ask())
		assert.Greater(t, len(gone), 1, "it has connected again")
		base.CloseIdleConnections()
	})
}

func TestNewTransport_Files(t *testing.T) {
	_, err := NewTransport(TransportOptions{CA: t.TempDir() + "/none"})
	assert.ErrorContains(t, err, "none")
	_, err = NewTransport(TransportOptions{Certificate: "/none", Key: "/none"})
	assert.ErrorContains(t, err, "/none")
}
