package proxy

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// A fault is a server that fails, and the requests that it gets.
type fault struct {
	server func(t *testing.T) (url string)
	// ask sends a request to a proxy, and returns its status.
	requests []fakeRequest
}

type fakeRequest struct{ method, path, body string }

// TestRoute_AnswersNoLessThanReverseProxy sends the same requests to a gateway and to an httputil.ReverseProxy, each with a faulty
// server of its own, one after the other: the gateway must answer each request that the ReverseProxy answers.
func TestRoute_AnswersNoLessThanReverseProxy(t *testing.T) {
	repeat := func(n int, all ...fakeRequest) (requests []fakeRequest) {
		for range n {
			requests = append(requests, all...)
		}
		return requests
	}
	get, post, empty := fakeRequest{"GET", "/", ""}, fakeRequest{"POST", "/", "body"}, fakeRequest{"POST", "/", ""}
	for name, f := range map[string]fault{
		"connections closed instead of a second answer": {closing, repeat(8, post, post, get, empty, empty, get)},
		"a handler that panics":                         {panicking, append(repeat(8, fakeRequest{"GET", "/panic", ""}), repeat(8, get, post)...)},
		"a handler that panics on one of two requests":  {panicking, repeat(8, get, fakeRequest{"POST", "/panic", "body"}, post)},
		"one slow route":                                {slow, append(repeat(8, fakeRequest{"GET", "/slow", ""}), repeat(8, get, post)...)},
		"a server that restarts":                        {restarting, append(repeat(8, post, get), append(repeat(8, fakeRequest{"GET", "/restart", ""}), repeat(8, post, get)...)...)},
		"a server that answers with odd statuses":       {odd, repeat(4, fakeRequest{"GET", "/099", ""}, fakeRequest{"GET", "/000", ""}, fakeRequest{"GET", "/999", ""}, get)},
	} {
		t.Run(name, func(t *testing.T) {
			want := answered(t, reverseProxy(t, f.server(t)), f.requests)
			got := answered(t, faultGateway(t, f.server(t)), f.requests)
			for i, r := range f.requests {
				assert.Equal(t, want[i], got[i], "%d: %s %s", i, r.method, r.path)
			}
		})
	}
}

// answered returns whether each of the requests gets 200.
func answered(t *testing.T, url string, requests []fakeRequest) (all []bool) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, r := range requests {
		req, err := http.NewRequestWithContext(t.Context(), r.method, url+r.path, strings.NewReader(r.body))
		require.NoError(t, err)
		resp, err := client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		all = append(all, err == nil && resp.StatusCode == http.StatusOK)
	}
	return all
}

// impatience is the timeout of the slow route. The slow server does not answer before that.
const impatience = 20 * time.Millisecond

// faultGateway starts a gateway as a file makes it: an upstream with one address has no circuit.
func faultGateway(t *testing.T, server string) string {
	impatient := weir.Must(pipeline.New("impatient", timeout.New(impatience, nil)))
	u := alone(t, server)
	return gateway(t, TableOptions{Routes: []Route{
		{Match: "/", Upstream: u},
		{Match: "/slow", Upstream: u, Pipeline: impatient},
	}}).URL
}

func reverseProxy(t *testing.T, server string) string {
	target, err := url.Parse(server)
	require.NoError(t, err)
	base := &http.Transport{DisableCompression: true}
	t.Cleanup(base.CloseIdleConnections)
	p := &httputil.ReverseProxy{
		Transport: base, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	return quiet(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			ctx, cancel := context.WithTimeout(r.Context(), impatience)
			defer cancel()
			r = r.WithContext(ctx)
		}
		p.ServeHTTP(w, r)
	}).URL
}

// quiet starts a server that logs nothing.
func quiet(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// closing answers the first request of each connection. It reads the second one and closes the connection, which looks to
// a proxy as if the server had closed an idle connection while the request was on its way.
func closing(t *testing.T) string {
	return listening(t, func(c net.Conn) {
		b := bufio.NewReader(c)
		for i := range 2 {
			r, err := http.ReadRequest(b)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if i == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		}
	})
}

// odd answers with the status in the path.
func odd(t *testing.T) string {
	return listening(t, func(c net.Conn) {
		b := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(b)
			if err != nil {
				return
			}
			status := r.URL.Path[1:]
			if _, err := strconv.Atoi(status); err != nil {
				status = "200"
			}
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+" Odd\r\nContent-Length: 0\r\n\r\n")
		}
	})
}

// listening starts a server that handles each connection, and then closes it.
func listening(t *testing.T, handle func(c net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { _ = c.Close() })
			running.Go(func() {
				defer stop()
				defer c.Close()
				handle(c)
			})
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}

func panicking(t *testing.T) string {
	return quiet(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}).URL
}

func slow(t *testing.T) string {
	return quiet(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
	}).URL
}

// restarting closes the connections of /restart without an answer, each of which is the last one of a process.
func restarting(t *testing.T) string {
	var s *httptest.Server
	var ready atomic.Pointer[httptest.Server]
	s = quiet(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/restart" {
			ready.Load().CloseClientConnections()
		}
	})
	ready.Store(s)
	return s.URL
}

// TestRoute_OddStatus checks that a status that HTTP does not have is the fault of the upstream.
func TestRoute_OddStatus(t *testing.T) {
	g := faultGateway(t, odd(t))
	for path, want := range map[string]int{"/099": http.StatusBadGateway, "/000": http.StatusBadGateway, "/999": 999, "/600": 600} {
		resp, err := http.Get(g + path)
		require.NoError(t, err, path)
		_ = resp.Body.Close()
		assert.Equal(t, want, resp.StatusCode, path)
	}
}

// TestRoute_OneClientCannotBreakUpstream has one client whose requests make the handler of each address panic, over and over.
func TestRoute_OneClientCannotBreakUpstream(t *testing.T) {
	g := gateway(t, TableOptions{Routes: []Route{{Match: "/", Upstream: to(t, panicking(t), panicking(t), panicking(t))}}}).URL
	for range 20 {
		assert.False(t, answered(t, g, []fakeRequest{{"GET", "/panic", ""}})[0])
		assert.True(t, answered(t, g, []fakeRequest{{"GET", "/", ""}})[0], "of another client")
	}
}
