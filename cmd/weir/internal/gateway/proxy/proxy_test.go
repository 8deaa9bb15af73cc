package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// A seen is what an upstream has got of a request.
type seen struct {
	Method, URI, Host string
	Header            http.Header
	Body              string
	Trailer           http.Header
}

// echo answers with what it has got.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_ = json.NewEncoder(w).Encode(seen{r.Method, r.RequestURI, r.Host, r.Header, string(body), r.Trailer})
}

// serve starts a server that is closed when the test ends.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// to returns an upstream of servers, each with a circuit breaker that opens after two failures.
func to(t *testing.T, urls ...string) *upstream.Upstream {
	t.Helper()
	base, err := upstream.NewTransport(upstream.TransportOptions{DialTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = base.Close() })
	addresses := make([]*upstream.Address, len(urls))
	for i, text := range urls {
		u, err := url.Parse(text)
		require.NoError(t, err)
		p, err := pipeline.New(u.Host, circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 2, BreakDuration: time.Hour}))
		require.NoError(t, err)
		addresses[i] = upstream.NewAddress(u, p)
	}
	return upstream.New("test", base, addresses...)
}

// alone returns an upstream of one server, which has no circuit breaker.
func alone(t *testing.T, server string) *upstream.Upstream {
	t.Helper()
	base, err := upstream.NewTransport(upstream.TransportOptions{DialTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = base.Close() })
	u, err := url.Parse(server)
	require.NoError(t, err)
	return upstream.New("test", base, upstream.NewAddress(u, nil))
}

// gateway starts a gateway with a table.
func gateway(t *testing.T, o TableOptions) *httptest.Server {
	t.Helper()
	table, err := NewTable(&o)
	require.NoError(t, err)
	p, err := pipeline.New("gateway", table)
	require.NoError(t, err)
	return serve(t, NewHandler(p, nil))
}

// raw sends bytes, and returns the first answer and the rest of the connection.
func raw(t *testing.T, s *httptest.Server, text string) (*http.Response, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	b := bufio.NewReader(c)
	resp, err := http.ReadResponse(b, nil)
	require.NoError(t, err)
	return resp, b
}

func decoded(t *testing.T, resp *http.Response) seen {
	t.Helper()
	defer resp.Body.Close()
	var s seen
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
	return s
}

// TestPaths has what the upstream gets for what the client sends.
func TestPaths(t *testing.T) {
	back := serve(t, http.HandlerFunc(echo))
	u := to(t, back.URL)
	g := gateway(t, TableOptions{Routes: []Route{
		{Match: "GET /api/orders/{id}", Upstream: u, StripPrefix: "/api"},
		{Match: "/api/", Upstream: u, StripPrefix: "/api/"},
		{Match: "/plain/", Upstream: to(t, back.URL+"/base")},
		{Match: "api.Example.com/hosted", Upstream: u, KeepHost: true},
		{Match: "/{rest...}", Upstream: u},
	}})
	for sent, want := range map[string]string{
		"/api/orders/7":        "/orders/7",
		"/api/orders/a%2Fb":    "/orders/a%2Fb",
		"/%61pi/orders/7":      "/orders/7",
		"/api//orders///7":     "/orders/7",
		"//api//evil.com/x":    "/evil.com/x",
		"/api/%2Fevil.com":     "/%2Fevil.com",
		"/api":                 "/",
		"/api/":                "/",
		"/api?a=1;b=2&c":       "/?a=1;b=2&c",
		"/plain":               "/base/plain",
		"/plain/a%20b/%c3%a9/": "/base/plain/a%20b/%c3%a9/",
		"/plain/a%2Fb":         "/base/plain/a%2Fb",
		"//a//b/":              "//a//b/",
		"/?":                   "/?",
		"/.well-known/x":       "/.well-known/x",
		"/a...b/..c":           "/a...b/..c",
		"http://other/x?y":     "/x?y",
		"http://other":         "/",
		"/plain%2F/a":          "/plain%2F/a", // no slash for the routes, or it would have the route of /plain/
		"/plain/%2F/a//b":      "/base/plain/%2F/a//b",
		"/plain/a%2Fb\"c":      "/base/plain/a%2Fb%22c",
		"/api/a%2Fb{ü}":        "/a%2Fb%7B%C3%BC%7D",
	} {
		resp, _ := raw(t, g, "GET "+sent+" HTTP/1.1\r\nHost: other\r\n\r\n")
		assert.Equal(t, want, decoded(t, resp).URI, sent)
	}
	for _, sent := range []string{
		"/a/../b", "/a/%2e%2e/b", "/a/.%2E/b", "/a/./b", "/a/..", "/a/..;x=1/b", "/a%2F..%2Fb", `/a/..\b`, "/a%5c..%5cb", "/a/%00",
		"x:http://other/api/orders/7", "http:api/orders/7", "*",
	} {
		resp, _ := raw(t, g, "GET "+sent+" HTTP/1.1\r\nHost: other\r\n\r\n")
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, sent)
	}
	for _, host := range []string{"api.example.com", "API.example.COM", "api.example.com.", "api.example.com:8080", "Api.Example.com.:8080"} {
		resp, _ := raw(t, g, "GET /hosted HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		assert.Equal(t, host, decoded(t, resp).Host, "the host of the route, kept as it was sent")
	}
	for _, host := range []string{"api.example.com..", "api.example.com:x", "api.example.com:1:2", "api.example.com:80:x"} {
		resp, _ := raw(t, g, "GET /hosted HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode, host)
	}
	for _, host := range []string{"[::1]", "[::1]:8080", "127.0.0.1:", "localhost"} {
		resp, _ := raw(t, g, "GET /a HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		assert.Equal(t, "/a", decoded(t, resp).URI, host)
	}
	for method, want := range map[string]int{"get": 400, "Post": 400, "PURGE": 200, "purge": 200} {
		resp, _ := raw(t, g, method+" /a HTTP/1.1\r\nHost: other\r\n\r\n")
		_ = resp.Body.Close()
		assert.Equal(t, want, resp.StatusCode, method)
	}
	resp, _ := raw(t, g, "CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n")
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}

// TestPaths_NoRedirect has routes for which a ServeMux redirects a path without a slash at its end.
func TestPaths_NoRedirect(t *testing.T) {
	back := serve(t, http.HandlerFunc(echo))
	g := gateway(t, TableOptions{Routes: []Route{
		{Match: "a.test/rest/{path...}", Upstream: to(t, back.URL+"/a")}, // with a host, so that it does not conflict with the third
		{Match: "/only/{$}", Upstream: to(t, back.URL+"/b")},
		{Match: "/{x}/y/", Upstream: to(t, back.URL+"/c")},
		{Match: "/v/{w}", Upstream: to(t, back.URL+"/d")}, // conflicts with /{x}/y
		{Match: "/{rest...}", Upstream: to(t, back.URL+"/e")},
	}})
	for sent, want := range map[string]string{
		"/rest":      "/a/rest",
		"/rest/":     "/a/rest/",
		"/only":      "/b/only",
		"/only/":     "/b/only/",
		"/only/z":    "/e/only/z",
		"/x/y":       "/c/x/y",
		"/x%2Fx//y":  "/c/x%2Fx//y",
		"/x/y/z":     "/c/x/y/z",
		"/v/y":       "/d/v/y",
		"/v/y/":      "/c/v/y/",
		"/x/":        "/e/x/",
		"/something": "/e/something",
	} {
		resp, _ := raw(t, g, "GET "+sent+" HTTP/1.1\r\nHost: a.test\r\n\r\n")
		assert.Equal(t, want, decoded(t, resp).URI, sent)
	}
}

// TestUnreachable_Timeout checks the status of a connection that cannot be made in time: nothing was asked, so there is no answer
// to be late.
func TestUnreachable_Timeout(t *testing.T) {
	base, err := upstream.NewTransport(upstream.TransportOptions{DialTimeout: 5 * time.Second})
	require.NoError(t, err)
	base.DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	u := upstream.New("u", base, upstream.NewAddress(&url.URL{Scheme: "http", Host: "a"}, nil))
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: u}}})
	resp, err := http.Get(g.URL)
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
}

func TestNewTable_Errors(t *testing.T) {
	u := to(t, "http://127.0.0.1:1")
	for _, routes := range [][]Route{
		{{Match: "GET", Upstream: u}},
		{{Match: "/a", Upstream: u}, {Match: "/a", Upstream: u}},
		{{Match: "/{a}/b", Upstream: u}, {Match: "/b/{a}", Upstream: u}},
		{{Match: "/a", Upstream: u, Policies: []string{"unknown"}}},
	} {
		_, err := NewTable(&TableOptions{Limits: weir.Must(weirhttp.NewLimits(nil)), Routes: routes})
		assert.ErrorContains(t, err, fmt.Sprintf("route %q", routes[len(routes)-1].Match))
	}
}

// TestForwarded checks whose word about the client counts.
func TestForwarded(t *testing.T) {
	back := serve(t, http.HandlerFunc(echo))
	routes := []Route{{Match: "/", Upstream: to(t, back.URL)}}
	claims := "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: a.test\r\nX-Forwarded-Prefix: /p\r\n" +
		"X_Forwarded_For: 192.0.2.1\r\nX-Original-Url: /admin\r\nX_Rewrite_Url: /admin\r\nProxy: http://192.0.2.1\r\nForwarded: for=192.0.2.1\r\nX-Real-Ip: 192.0.2.1\r\nCf-Connecting-Ip: 192.0.2.1\r\n"
	ask := func(g *httptest.Server, connection string) seen {
		resp, _ := raw(t, g, "GET / HTTP/1.1\r\nHost: b.test\r\n"+claims+connection+"\r\n")
		return decoded(t, resp)
	}
	for _, connection := range []string{
		"", "Connection: X-Forwarded-For, X-Forwarded-Host, X-Forwarded-Proto\r\n", "Connection: close, X-Forwarded-For\r\n",
	} {
		h := ask(gateway(t, TableOptions{Routes: routes, Address: weirhttp.AddressOptions{Header: "CF-Connecting-IP"}}), connection).Header
		assert.Equal(t, []string{"127.0.0.1"}, h[xForwardedFor])
		assert.Equal(t, []string{"b.test"}, h[xForwardedHost])
		assert.Equal(t, []string{"http"}, h[xForwardedProto])
		for _, name := range []string{
			"Forwarded", "X-Real-Ip", xForwardedPrefix, "X_forwarded_for", "Cf-Connecting-Ip", "X-Original-Url", "X_rewrite_url", "Proxy",
		} {
			assert.NotContains(t, h, name)
		}
		h = ask(gateway(t, TableOptions{Routes: routes, Address: weirhttp.AddressOptions{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}), connection).Header
		assert.Equal(t, []string{"192.0.2.1, 127.0.0.1"}, h[xForwardedFor])
		assert.Equal(t, []string{"a.test"}, h[xForwardedHost])
		assert.Equal(t, []string{"https"}, h[xForwardedProto])
		assert.Equal(t, []string{"for=192.0.2.1"}, h["Forwarded"])
		assert.NotContains(t, h, "X_forwarded_for", "no proxy writes that")
	}
}

func TestVia(t *testing.T) {
	routes := []Route{{Match: "/", Upstream: to(t, serve(t, http.HandlerFunc(echo)).URL)}}
	for via, want := range map[string][]string{"edge": {"1.0 before", "1.1 edge"}, "": {"1.0 before"}} {
		resp, _ := raw(t, gateway(t, TableOptions{Routes: routes, Via: via}), "GET / HTTP/1.1\r\nHost: a\r\nVia: 1.0 before\r\n\r\n")
		assert.Equal(t, want, decoded(t, resp).Header["Via"])
	}
}

// TestForwarded_KeyHeader checks that a server that makes variables of an environment of header fields gets no second key beside the one
// that the limiter has counted.
func TestForwarded_KeyHeader(t *testing.T) {
	back := serve(t, http.HandlerFunc(echo))
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, back.URL)}}, KeyHeaders: []string{"x-api-key", "Authorization"}})
	resp, _ := raw(t, g, "GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: 1\r\nX_Api_Key: 2\r\nX-Api_Key: 3\r\nX_Other: 4\r\nAuthorization: a\r\n\r\n")
	h := decoded(t, resp).Header
	assert.Equal(t, []string{"1"}, h["X-Api-Key"])
	assert.Equal(t, []string{"a"}, h["Authorization"])
	assert.Equal(t, []string{"4"}, h["X_other"])
	assert.NotContains(t, h, "X_api_key")
	assert.NotContains(t, h, "X-Api_key")
}

// TestForwarded_Trailer checks that the trailer makes no claims that the header cannot make.
func TestForwarded_Trailer(t *testing.T) {
	back := serve(t, http.HandlerFunc(echo))
	for _, trusted := range []bool{false, true} {
		o := TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, back.URL)}}, KeyHeaders: []string{"x-api-key"}}
		want := http.Header{"X-Sum": {"7"}}
		if trusted {
			o.Address.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			want["X-Forwarded-For"], want["X-Real-Ip"] = []string{"192.0.2.1"}, []string{"192.0.2.1"}
		}
		resp, _ := raw(t, gateway(t, o), "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-For, X-Sum\r\n\r\n"+
			"1\r\na\r\n0\r\nX-Forwarded-For: 192.0.2.1\r\nX-Real-Ip: 192.0.2.1\r\nX-Api-Key: 2\r\nX-Sum: 7\r\n\r\n")
		s := decoded(t, resp)
		assert.Equal(t, "a", s.Body)
		assert.Equal(t, want, s.Trailer)
	}
}

// TestSmuggling sends what two servers could understand differently.
func TestSmuggling(t *testing.T) {
	back := serve(t, http.HandlerFunc(echo))
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, back.URL)}}})
	for name, text := range map[string]string{
		"two lengths":       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"unknown encoding":  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"space before :":    "GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n",
		"two hosts":         "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"no host":           "GET / HTTP/1.1\r\n\r\n",
		"host with a slash": "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
		"huge header":       "GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 2<<20) + "\r\n\r\n",
		"negative length":   "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
	} {
		resp, _ := raw(t, g, text)
		_ = resp.Body.Close()
		assert.GreaterOrEqual(t, resp.StatusCode, 400, name)
		assert.Less(t, resp.StatusCode, 600, name)
	}
	// A proxy before the gateway may have taken another end of the body for the right one: what follows is not served. The upstream
	// gets no length.
	for name, fields := range map[string]string{
		"HTTP/1.1": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
		"HTTP/1.0": "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n",
	} {
		resp, rest := raw(t, g, "POST / "+name+"\r\nHost: a\r\n"+fields+"\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n")
		s := decoded(t, resp)
		assert.Empty(t, s.Body)
		assert.NotEqual(t, []string{"5"}, s.Header["Content-Length"])
		_, err := rest.ReadByte()
		require.ErrorIs(t, err, io.EOF, name)
	}
}

func TestRetry_OtherAddress(t *testing.T) {
	var calls [2]int
	var servers [2]*httptest.Server
	for i := range servers {
		servers[i] = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls[i]++; calls[0]+calls[1]&1 == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			echo(w, r)
		}))
	}
	p := weir.Must(pipeline.New("attempts", retry.New(&retry.Options{MaxRetries: 1, Delay: time.Nanosecond})))
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, servers[0].URL, servers[1].URL), Pipeline: p}}})

	for _, method := range []string{http.MethodGet, http.MethodPut} {
		calls = [2]int{}
		req, err := http.NewRequestWithContext(t.Context(), method, g.URL, strings.NewReader("small"))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		assert.Equal(t, [2]int{1, 1}, calls, "the second attempt goes to the other address")
	}
	calls = [2]int{}
	resp, err := http.Post(g.URL, "text/plain", strings.NewReader("small"))
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, 1, calls[0]+calls[1], "a POST is sent once")
}

func TestUnreachable(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	back := serve(t, http.HandlerFunc(echo))
	both := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, gone.URL, back.URL)}}})
	for range 20 { // a body that nothing was sent of goes on to the next address
		resp, err := http.Post(both.URL, "text/plain", strings.NewReader("some text"))
		require.NoError(t, err)
		assert.Equal(t, "some text", decoded(t, resp).Body)
	}
	none := gateway(t, TableOptions{Body: weirhttp.ProblemJSON, Routes: []Route{{Match: "/", Upstream: to(t, gone.URL)}}})
	for range 5 { // the last address is always asked
		resp, err := http.Get(none.URL)
		require.NoError(t, err)
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
		assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
		assert.NotContains(t, string(text), "127.0.0.1")
	}
}

// TestClientFault checks that a client cannot open the circuit of an address by breaking off its requests.
func TestClientFault(t *testing.T) {
	back := serve(t, http.HandlerFunc(echo))
	u := to(t, back.URL)
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: u}}})
	for range 5 {
		c, err := net.Dial("tcp", g.Listener.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nno size\r\n")
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	resp, err := http.Get(g.URL)
	require.NoError(t, err)
	assert.Equal(t, "/", decoded(t, resp).URI)
}

func TestTrailersAndContinue(t *testing.T) {
	back := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = fmt.Fprintf(w, "%s %v", body, r.Trailer["X-Check"])
		w.Header().Set("X-Sum", "7")
		w.Header().Set(http.TrailerPrefix+"X-Late", "8")
	}))
	attempts := weir.Must(pipeline.New("attempts", retry.New(nil)))
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, back.URL), Pipeline: attempts}}})
	resp, _ := raw(t, g, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\nTrailer: X-Check\r\n\r\n")
	_ = resp.Body.Close()
	require.Equal(t, http.StatusContinue, resp.StatusCode)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL, io.MultiReader(strings.NewReader("body")))
	require.NoError(t, err)
	req.Trailer = http.Header{"X-Check": {"5"}}
	resp, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, "body [5]", string(text))
	assert.Equal(t, "7", resp.Trailer.Get("X-Sum"))
	assert.Equal(t, "8", resp.Trailer.Get("X-Late"))
}

// TestStreams checks that events arrive one by one, and that bodies go both ways at once.
func TestStreams(t *testing.T) {
	back := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.Header().Set("Content-Type", "text/event-stream")
		_ = rc.Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", lines.Text())
			_ = rc.Flush()
		}
		assert.NoError(t, lines.Err())
	}))
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, back.URL)}}})
	in, out := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL, in)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		_, err = fmt.Fprintf(out, "%d\n", i)
		require.NoError(t, err)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("data: %d\n", i), line)
		_, _ = lines.ReadString('\n')
	}
	require.NoError(t, out.Close())
	_, err = io.Copy(io.Discard, lines) // the upstream has read the end
	require.NoError(t, err)
	_ = resp.Body.Close()
}

// TestUpgrade_NoTunnelForHTTP checks that no client gets a connection to the upstream on which it can send requests past
// the gateway.
func TestUpgrade_NoTunnelForHTTP(t *testing.T) {
	back := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" && r.URL.Path != "/always" {
			echo(w, r)
			return
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
			_ = c.Close()
		}
	}))
	table, err := NewTable(&TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, back.URL)}}})
	require.NoError(t, err)
	statuses := make(recorded, 100)
	g := serve(t, NewHandler(weir.Must(pipeline.New("gateway", table)), statuses))
	for _, protocol := range []string{"h2c", "H2C", "HTTP/2.0", "websocket, h2c", "TLS/1.0"} {
		resp, _ := raw(t, g, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+protocol+"\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
		h := decoded(t, resp).Header
		assert.NotContains(t, h, "Upgrade", protocol)
		assert.NotContains(t, h, "Http2-Settings", protocol)
		assert.Equal(t, http.StatusOK, <-statuses)
	}
	resp, _ := raw(t, g, "GET /always HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.Equal(t, http.StatusBadGateway, <-statuses)
}

// A recorded has the statuses of requests.
type recorded chan int

func (r recorded) RecordRequest(_ context.Context, _, _, _ string, status int, _ string, _ time.Duration) {
	r <- status
}

// TestHandler_NotBegun checks the status of a request that ends before it has a route: its client has gone, or the gateway ends.
func TestHandler_NotBegun(t *testing.T) {
	p := weir.Must(pipeline.New("gateway"))
	for cause, want := range map[error]int{nil: weirhttp.StatusClientClosedRequest, ErrShutdown: http.StatusServiceUnavailable} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		statuses := make(recorded, 1)
		w := httptest.NewRecorder()
		NewHandler(p, statuses).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		assert.Equal(t, want, <-statuses)
	}
}

// TestEarlyHints checks that the fields of the policies are in the answer, and not in the 1xx answers before it.
func TestEarlyHints(t *testing.T) {
	back := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>")
		w.Header().Set("X-RateLimit-Limit", "1000")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusOK)
	}))
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Headers:  weirhttp.Legacy,
		Policies: map[string]weirhttp.Policy{"all": {Limit: weirhttp.Of(weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour})))}},
	}))
	g := gateway(t, TableOptions{Limits: limits, Routes: []Route{{Match: "/", Upstream: to(t, back.URL), Policies: []string{"all"}}}})
	resp, rest := raw(t, g, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for range 2 {
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusEarlyHints, resp.StatusCode)
		assert.Equal(t, "</a.css>", resp.Header.Get("Link"))
		assert.Equal(t, []string{"1000"}, resp.Header.Values("X-RateLimit-Limit"), "of the upstream")
		var err error
		resp, err = http.ReadResponse(rest, nil)
		require.NoError(t, err)
	}
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Empty(t, resp.Header.Get("Link"))
	assert.Equal(t, []string{"5"}, resp.Header.Values("X-RateLimit-Limit"))
	assert.Equal(t, []string{"4"}, resp.Header.Values("X-RateLimit-Remaining"))
}
