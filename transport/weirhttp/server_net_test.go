package weirhttp

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/weirtest"
)

// A pipeServer is a server whose connections are pipes, so that it can run in a bubble of synctest.
type pipeServer struct {
	URL    string
	client http.Client
	accept chan net.Conn
	closed chan struct{}
	dialed atomic.Int64
}

// A pipeConn is a connection with the address of its own client.
type pipeConn struct {
	net.Conn
	remote net.Addr
}

func (c pipeConn) RemoteAddr() net.Addr { return c.remote }

// serve starts a server, with HTTP/2 if http2 is true. set changes its options.
func serve(t testing.TB, h http.Handler, http2 bool, set ...func(*http.Server)) *pipeServer {
	s := &pipeServer{URL: "http://server/", accept: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)} //nolint:gosec // in a test
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	for _, f := range set {
		f(server)
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return s.dial(), nil }}
	if http2 {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	s.client.Transport = transport
	go func() { _ = server.Serve(s) }()
	t.Cleanup(func() { _ = server.Close() })
	t.Cleanup(transport.CloseIdleConnections)
	return s
}

func (s *pipeServer) Client() *http.Client { return &s.client }

// dial returns a connection to the server.
func (s *pipeServer) dial() net.Conn {
	client, server := net.Pipe()
	s.accept <- pipeConn{server, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: int(s.dialed.Add(1))}}
	return client
}

func (s *pipeServer) Accept() (net.Conn, error) {
	select {
	case c := <-s.accept:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *pipeServer) Close() error   { close(s.closed); return nil }
func (s *pipeServer) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 80} }

// raw sends the text of requests on a connection of its own, and returns what comes back.
func (s *pipeServer) raw(t testing.TB, text string) *bufio.Reader {
	conn := s.dial()
	t.Cleanup(func() { _ = conn.Close() })
	go func() { _, _ = io.WriteString(conn, text) }()
	return bufio.NewReader(conn)
}

// versions runs a test in bubbles, over both versions of HTTP.
func versions(t *testing.T, test func(t *testing.T, http2 bool)) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, http2) }) })
	}
}

// wrappings returns the middleware that the package can put around a handler. "nothing" is the reference: net/http
// alone.
func wrappings(t time.Duration) map[string]func(http.Handler) http.Handler {
	return map[string]func(http.Handler) http.Handler{
		"nothing":                 func(h http.Handler) http.Handler { return h },
		"a policy":                weir.Must(weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes())}})).Wrap()),
		"a policy's Timeout":      weir.Must(weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes()), Timeout: t}})).Wrap()),
		"a timeout in a pipeline": Through(weir.Must(pipeline.New("t", timeout.New(t, nil))), nil),
		"Measure":                 Measure(discardRecorder{}, nil),
		"both": func(h http.Handler) http.Handler {
			return weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes()), Timeout: t}})).Handler(
				Through(weir.Must(pipeline.New("t", timeout.New(2*t, nil))), nil)(h))
		},
	}
}

func everyWrapping(t *testing.T, limit time.Duration, test func(t *testing.T, wrap func(http.Handler) http.Handler, http2 bool)) {
	for name := range wrappings(limit) {
		t.Run(name, func(t *testing.T) {
			versions(t, func(t *testing.T, http2 bool) { test(t, wrappings(limit)[name], http2) })
		})
	}
}

func do(t testing.TB, s *pipeServer, r *http.Request) (status int, body string) {
	t.Helper()
	response, err := s.Client().Do(r)
	require.NoError(t, err)
	return read(t, response)
}

func read(t testing.TB, response *http.Response) (status int, body string) {
	t.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func request(t testing.TB, s *pipeServer, body io.Reader) *http.Request {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL, body)
	require.NoError(t, err)
	return r
}

// slowLoris returns a body of which only the first byte ever comes.
func slowLoris(t testing.TB) io.Reader {
	r, w := io.Pipe()
	go func() { _, _ = w.Write([]byte("x")) }()
	t.Cleanup(func() { _ = w.Close(); _ = r.Close() })
	return r
}

// A client that hangs up in the queue has its slot no longer, gets back what it had paid, and was not rejected.
func TestServer_AbortWhileQueuedFreesTheSlot(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool) {
		slots, first, heard := concurrency(t, 1, 1), bucket(t, 10), new(weirtest.Recorder)
		l := weir.Must(NewLimits(&LimitsOptions{
			Listener: heard,
			Policies: map[string]Policy{"first": {Limit: Of(first)}, "p": {Limit: Of(slots)}},
		}))
		s := serve(t, l.Handler(handler(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }), "first", "p"), http2)
		holding := request(t, s, nil)
		go func() {
			response, err := s.Client().Do(holding)
			if assert.NoError(t, err) {
				response.Body.Close()
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := s.Client().Do(request(t, s, nil).WithContext(ctx)) //nolint:bodyclose // there is none
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		assert.Zero(t, slots.Statistics().QueuedPermits)
		assert.EqualValues(t, 9, first.Statistics().AvailablePermits)
		status, _ := do(t, s, request(t, s, nil))
		assert.Equal(t, 200, status)
		assert.Empty(t, heard.Events())
		canceled := 0
		for _, m := range heard.Measurements() {
			if m.Err != nil {
				assert.ErrorIs(t, m.Err, context.Canceled)
				assert.Equal(t, "p", m.Source.Strategy)
				canceled++
			}
		}
		assert.Equal(t, 1, canceled)
	})
}

// A client that sends slowly holds no permit beyond the time of the handler, and others are none the worse.
func TestServer_SlowClientHoldsNoPermitBeyondTheTimeout(t *testing.T) {
	readsAll := handler(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return // what it would answer is another matter
		}
		_, _ = io.WriteString(w, "read")
	})
	limits := func(p Policy) *Limits {
		return weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": p}}))
	}
	through := func(after time.Duration) func(http.Handler) http.Handler {
		return Through(weir.Must(pipeline.New("t", timeout.New(after, nil))), nil)
	}
	wraps := map[string]func(t *testing.T, slots limiter.Limiter) http.Handler{
		"a policy's Timeout": func(_ *testing.T, slots limiter.Limiter) http.Handler {
			return limits(Policy{Limit: Of(slots), Timeout: time.Second}).Handler(readsAll, "p")
		},
		"a timeout in a pipeline": func(_ *testing.T, slots limiter.Limiter) http.Handler {
			return limits(Policy{Limit: Of(slots)}).Handler(through(time.Second)(readsAll), "p")
		},
		"a strategy of the program": func(_ *testing.T, slots limiter.Limiter) http.Handler {
			return limits(Policy{Limit: Of(slots)}).Handler(Through(ownTimeout(), nil)(readsAll), "p")
		},
		"one in a policy": func(_ *testing.T, slots limiter.Limiter) http.Handler {
			l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(slots)}, Policies: map[string]Policy{"p": {Limit: ByPipeline(ownTimeout())}}}))
			return l.Handler(readsAll, "p")
		},
		"a proxy": func(t *testing.T, slots limiter.Limiter) http.Handler { // which reads on another goroutine
			proxy := proxyTo(t, serve(t, readsAll, false))
			proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusServiceUnavailable) }
			return limits(Policy{Limit: Of(slots), Timeout: time.Second}).Handler(proxy, "p")
		},
	}
	for name, times := range map[string][2]time.Duration{"short in long": {time.Second, time.Hour}, "long in short": {time.Hour, time.Second}} {
		wraps[name] = func(_ *testing.T, slots limiter.Limiter) http.Handler {
			l := weir.Must(NewLimits(&LimitsOptions{
				Global:   Policy{Limit: Of(slots), Timeout: times[1]},
				Policies: map[string]Policy{"p": {Limit: Of(yes()), Timeout: time.Minute}},
			}))
			return l.Handler(through(times[0])(l.Handler(readsAll, "p")))
		}
	}
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			versions(t, func(t *testing.T, http2 bool) {
				slots, began := concurrency(t, 1, 0), time.Now()
				s := serve(t, wrap(t, slots), http2)
				response, err := s.Client().Do(request(t, s, slowLoris(t)))
				if err == nil { // over HTTP/1 the connection may be closed first
					assert.Equal(t, 503, response.StatusCode)
					response.Body.Close()
				} else {
					assert.False(t, http2, err)
				}
				synctest.Wait()
				assert.LessOrEqual(t, time.Since(began), 2*time.Second)
				assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
				for range 2 { // also on a connection that lives on
					status, body := do(t, s, request(t, s, strings.NewReader("all of it")))
					assert.Equal(t, 200, status)
					assert.Equal(t, "read", body)
					time.Sleep(time.Second) // past the deadline of the last one
				}
			})
		})
	}
}

// ownTimeout returns a pipeline with a strategy of the program, which ends attempts after a second.
func ownTimeout() *pipeline.Pipeline {
	return weir.Must(pipeline.New("own", pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return next.Run(ctx)
	})))
}

// A page that net/http sends before the handler has returned holds no permit while it waits for the rest of a body.
func TestServer_SlowClientThatGetsALongPage(t *testing.T) {
	page := func(w http.ResponseWriter, r *http.Request, rejection Rejection) {
		n, err := r.Body.Read(make([]byte, 1))
		assert.Equal(t, 1, n, "what the client has sent, %v", err)
		w.WriteHeader(rejection.Status)
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
	}
	waits := handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for name, c := range map[string]struct {
		p      Policy
		status int
	}{
		"a policy's Timeout": {Policy{Limit: Of(yes()), Timeout: time.Second}, 503},
		"a rejection":        {Policy{Limit: Of(no())}, 429},
		"a pipeline":         {Policy{Limit: ByPipeline(ownTimeout())}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slots := concurrency(t, 1, 0)
				l := weir.Must(NewLimits(&LimitsOptions{
					Global: Policy{Limit: Of(slots)}, Body: page, Policies: map[string]Policy{"p": c.p},
				}))
				s := serve(t, weir.Must(l.Wrap())(l.Handler(waits, "p")), false)
				in := s.raw(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
				response, err := http.ReadResponse(in, nil)
				require.NoError(t, err)
				assert.Equal(t, c.status, response.StatusCode)
				text, err := io.ReadAll(response.Body)
				assert.NoError(t, err)
				assert.Len(t, text, 1<<16)
				response.Body.Close()
				synctest.Wait()
				assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
			})
		})
	}
}

// A handler that ran out of time because its client sends slowly is a failure for a breaker around it.
func TestServer_SlowClientIsAFailureForABreaker(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool) {
		breaker := circuitbreaker.New(&circuitbreaker.Options{FailureRatio: -1, ConsecutiveFailures: 1})
		l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(yes()), Timeout: time.Second}}}))
		readsAll := handler(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })
		limited := l.Handler(readsAll, "p")
		s := serve(t, around(t, nil, breaker)(handler(func(w http.ResponseWriter, r *http.Request) {
			limited.ServeHTTP(w, r)
			time.Sleep(time.Second) // so that the end of the connection is known
		})), http2)
		if response, err := s.Client().Do(request(t, s, slowLoris(t))); err == nil { // over HTTP/1 the connection may be closed first
			response.Body.Close()
		}
		synctest.Wait()
		assert.Equal(t, circuitbreaker.Open, breaker.State())
	})
}

// The read deadline does not disturb a handler that goes on within its Timeout after it has read the body.
func TestServer_DeadlineOfTheBodyDoesNotEndTheRequest(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool) {
		l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(yes()), Timeout: time.Second}}}))
		s := serve(t, l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			outer := admission.CallOf[*http.Request](r.Context()).Context
			time.Sleep(2*time.Second - 1)
			assert.NoError(t, outer.Err(), "the client is still there")
			assert.Error(t, r.Context().Err())
			_, _ = io.WriteString(w, "late")
		}), "p"), http2)
		status, body := do(t, s, request(t, s, strings.NewReader("x")))
		assert.Equal(t, 200, status, "a late success is one")
		assert.Equal(t, "late", body)
	})
}

// A client that does not read the answer holds no permit beyond the Timeout.
func TestServer_SlowReaderHoldsNoPermitBeyondTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := concurrency(t, 1, 0)
		l := weir.Must(NewLimits(&LimitsOptions{
			Global:   Policy{Limit: Of(yes()), Timeout: time.Hour},
			Policies: map[string]Policy{"p": {Limit: Of(slots)}},
		}))
		p := weir.Must(pipeline.New("t", timeout.New(time.Second, nil)))
		long := weir.Must(pipeline.New("t", timeout.New(time.Hour, nil)))
		h := Through(long, nil)(Through(p, nil)(handler(func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		})))
		s := serve(t, l.Handler(h, "p"), false)
		s.raw(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		assert.EqualValues(t, 0, slots.Statistics().AvailablePermits)
		time.Sleep(2 * time.Second) // with the grace for writing
		synctest.Wait()
		assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
	})
}

// Over HTTP/1, net/http reads the rest of a body when the handler writes. Even then a slow client holds no permit
// beyond the Timeout.
func TestServer_SlowClientWhoseBodyIsNotRead(t *testing.T) {
	large := strings.Repeat("x", 1<<16)
	for name, h := range map[string]handler{
		"a large answer": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) },
		"a copied one":   func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader(large)) },
		"a stream":       func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slots := concurrency(t, 1, 0)
				l := weir.Must(NewLimits(&LimitsOptions{
					Global:   Policy{Limit: Of(yes()), Timeout: time.Hour},
					Policies: map[string]Policy{"p": {Limit: Of(slots), Timeout: time.Second}},
				}))
				s := serve(t, weir.Must(l.Wrap())(l.Handler(h, "p")), false)
				in := s.raw(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
				synctest.Wait()
				assert.EqualValues(t, 0, slots.Statistics().AvailablePermits)
				response, err := http.ReadResponse(in, nil)
				require.NoError(t, err)
				assert.Equal(t, 200, response.StatusCode)
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				synctest.Wait()
				assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
			})
		})
	}
}

// The deadlines of a hijacked connection are the handler's, even if some of the request's body was left.
func TestServer_HijackedConnectionKeepsItsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hijacked := make(chan net.Conn, 1)
		l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes()), Timeout: time.Minute}}))
		s := serve(t, l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadFull(r.Body, make([]byte, 1)) // sets the deadline
			assert.NoError(t, err)
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				assert.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
				hijacked <- conn
			}
			_, _ = r.Body.Read(make([]byte, 1)) // what the server has read already
		})), false)
		s.raw(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
		conn, began := <-hijacked, time.Now()
		defer conn.Close()
		_, err := conn.Read(make([]byte, 10))
		var timedOut net.Error
		require.ErrorAs(t, err, &timedOut)
		assert.True(t, timedOut.Timeout())
		assert.Equal(t, time.Hour, time.Since(began))
	})
}

// A deadline that the handler sets applies if it is earlier than the Timeout, and cannot postpone the Timeout.
func TestServer_DeadlinesOfTheHandler(t *testing.T) {
	for name, c := range map[string]struct{ timeout, deadline, most time.Duration }{
		"the handler's is earlier": {time.Hour, time.Second, 2 * time.Second},
		"ours is earlier":          {time.Second, time.Hour, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				done := make(chan struct{})
				l := weir.Must(NewLimits(&LimitsOptions{
					Global:   Policy{Limit: Of(yes()), Timeout: time.Hour},
					Policies: map[string]Policy{"p": {Limit: Of(yes()), Timeout: c.timeout}},
				}))
				s := serve(t, weir.Must(l.Wrap())(l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
					defer close(done)
					control := http.NewResponseController(w)
					assert.NoError(t, control.SetReadDeadline(time.Now().Add(c.deadline)))
					_, err := io.ReadAll(r.Body)
					assert.Error(t, err)
					assert.NoError(t, control.SetWriteDeadline(time.Now().Add(c.deadline)))
					for err = nil; err == nil; {
						_, err = w.Write(make([]byte, 1<<16))
					}
				}), "p")), false)
				began := time.Now()
				s.raw(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
				<-done
				assert.LessOrEqual(t, time.Since(began), c.most)
			})
		})
	}
}

func TestPolicy_Timeout(t *testing.T) {
	heard := new(weirtest.Recorder)
	held := yes()
	l := weir.Must(NewLimits(&LimitsOptions{Listener: heard, Policies: map[string]Policy{
		"p": {Limit: Of(held), Timeout: time.Millisecond}, "longer": {Limit: Of(yes()), Timeout: time.Hour},
		"shadow": {Limit: Of(yes()), Timeout: 1, Shadow: true}, // is not in force
	}}))
	w := get(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		cause, ok := context.Cause(r.Context()).(*timeout.Error)
		assert.True(t, ok)
		assert.True(t, cause.Timeout())
	}), "longer", "shadow", "p"))
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, []string{"OnTimeout p"}, names(heard.Events()))
	assert.ErrorIs(t, heard.Events()[0].Err, pipeline.ErrRejected)
	assert.EqualError(t, heard.Events()[0].Err, "timeout: http/p: no result within 1ms")
	held.check(t, 1, 1, 0) // it ran, so it cost
}
