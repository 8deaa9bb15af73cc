package weirhttp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/admission"
)

// serve starts a local server, with HTTP/2 if http2 is true.
func serve(t testing.TB, h http.Handler, http2 bool) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	t.Cleanup(s.Client().CloseIdleConnections)
	return s
}

// versions runs a test over both versions of HTTP.
func versions(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Run("HTTP/1.1", func(t *testing.T) { test(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { test(t, true) })
}

func do(t testing.TB, s *httptest.Server, r *http.Request) (status int, body string) {
	t.Helper()
	response, err := s.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func request(t testing.TB, s *httptest.Server, body io.Reader) *http.Request {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL, body)
	require.NoError(t, err)
	return r
}

func eventually(t testing.TB, what func() bool, text string) {
	t.Helper()
	require.Eventually(t, what, 10*time.Second, time.Millisecond, text)
}

func TestServer_AbortWhileQueuedFreesTheSlot(t *testing.T) {
	versions(t, func(t *testing.T, http2 bool) {
		slots := concurrency(t, 1, 1)
		first := bucket(t, 10)
		heard := &recording{}
		l := weir.Must(NewLimits(&LimitsOptions{
			Listener: heard,
			Policies: map[string]Policy{"first": {Limit: Of(first)}, "p": {Limit: Of(slots)}},
		}))
		hold := make(chan struct{})
		s := serve(t, l.Handler(handler(func(http.ResponseWriter, *http.Request) { <-hold }), "first", "p"), http2)
		held := make(chan struct{})
		holding := request(t, s, nil)
		go func() {
			defer close(held)
			response, err := s.Client().Do(holding)
			if assert.NoError(t, err) {
				response.Body.Close()
			}
		}()
		eventually(t, func() bool { return slots.Statistics().AvailablePermits == 0 }, "the first holds the slot")

		ctx, cancel := context.WithCancel(t.Context())
		aborted := make(chan struct{})
		second := request(t, s, nil).WithContext(ctx)
		go func() {
			defer close(aborted)
			_, err := s.Client().Do(second) //nolint:bodyclose // there is none
			assert.ErrorIs(t, err, context.Canceled)
		}()
		eventually(t, func() bool { return slots.Statistics().QueuedPermits == 1 }, "the second waits")
		cancel()
		<-aborted
		eventually(t, func() bool { return slots.Statistics().QueuedPermits == 0 }, "it does not wait any more")
		eventually(t, func() bool { return first.Statistics().AvailablePermits == 9 }, "it got back what it had paid")
		close(hold)
		<-held
		status, _ := do(t, s, request(t, s, nil))
		assert.Equal(t, 200, status)

		heard.mu.Lock()
		defer heard.mu.Unlock()
		assert.Empty(t, heard.events, "no request was rejected")
		canceled := 0
		for _, m := range heard.measurements {
			if m.Err != nil {
				assert.ErrorIs(t, m.Err, context.Canceled)
				assert.Equal(t, "p", m.Source.Strategy)
				canceled++
			}
		}
		assert.Equal(t, 1, canceled)
	})
}

// slowLoris returns a body of which only the first byte ever comes.
func slowLoris(t testing.TB) io.Reader {
	r, w := io.Pipe()
	go func() { _, _ = w.Write([]byte("x")) }()
	t.Cleanup(func() { _ = w.Close(); _ = r.Close() })
	return r
}

func TestServer_SlowClientHoldsNoPermitBeyondTheTimeout(t *testing.T) {
	readsAll := handler(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			return // what it would answer is another matter
		}
		_, _ = io.WriteString(w, "read")
	})
	wraps := map[string]func(slots limiter.Limiter) http.Handler{
		"a policy's Timeout": func(slots limiter.Limiter) http.Handler {
			l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(slots), Timeout: 50 * time.Millisecond}}}))
			return l.Handler(readsAll, "p")
		},
		"a timeout in a pipeline": func(slots limiter.Limiter) http.Handler {
			l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(slots)}}}))
			p := weir.Must(pipeline.New("t", timeout.New(50*time.Millisecond, nil)))
			return l.Handler(Through(p, nil)(readsAll), "p")
		},
	}
	inAnother := func(inner, outer time.Duration) func(slots limiter.Limiter) http.Handler {
		return func(slots limiter.Limiter) http.Handler {
			l := weir.Must(NewLimits(&LimitsOptions{
				Global:   Policy{Limit: Of(slots), Timeout: outer},
				Policies: map[string]Policy{"p": {Limit: Of(yes()), Timeout: time.Minute}},
			}))
			p := weir.Must(pipeline.New("t", timeout.New(inner, nil)))
			return l.Handler(Through(p, nil)(l.Handler(readsAll, "p")))
		}
	}
	wraps["a short one in a long one"] = inAnother(50*time.Millisecond, time.Hour)
	wraps["a long one in a short one"] = inAnother(time.Hour, 50*time.Millisecond)
	// A proxy reads the body on another goroutine, and answers 502.
	backend := serve(t, readsAll, false)
	wraps["behind a policy's Timeout a proxy"] = func(slots limiter.Limiter) http.Handler {
		proxy := proxyTo(t, backend.URL)
		proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusServiceUnavailable) }
		l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(slots), Timeout: 50 * time.Millisecond}}}))
		return l.Handler(proxy, "p")
	}
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			versions(t, func(t *testing.T, http2 bool) {
				slots := concurrency(t, 1, 0)
				s := serve(t, wrap(slots), http2)
				response, err := s.Client().Do(request(t, s, slowLoris(t)))
				if err == nil { // over HTTP/1 the connection may be closed first
					assert.Equal(t, 503, response.StatusCode)
					response.Body.Close()
				} else {
					assert.False(t, http2, err)
				}
				eventually(t, func() bool { return slots.Statistics().AvailablePermits == 1 }, "the permit is back")

				for range 2 { // others are none the worse, also on a connection that lives on
					status, body := do(t, s, request(t, s, strings.NewReader("all of it")))
					assert.Equal(t, 200, status)
					assert.Equal(t, "read", body)
					time.Sleep(60 * time.Millisecond) // past the deadline of the last one
				}
			})
		})
	}
}

// The read deadline does not disturb a handler that goes on within its Timeout after it has read the body.
func TestServer_DeadlineOfTheBodyDoesNotEndTheRequest(t *testing.T) {
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(yes()), Timeout: 30 * time.Millisecond}}}))
	s := serve(t, l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		outer := admission.CallOf[*http.Request](r.Context()).Context
		time.Sleep(60 * time.Millisecond)
		assert.NoError(t, outer.Err(), "the client is still there")
		assert.Error(t, r.Context().Err())
		_, _ = io.WriteString(w, "late")
	}), "p"), false)
	status, body := do(t, s, request(t, s, strings.NewReader("x")))
	assert.Equal(t, 200, status, "a late success is one")
	assert.Equal(t, "late", body)
}

// A client that does not read the answer holds no permit beyond the Timeout.
func TestServer_SlowReaderHoldsNoPermitBeyondTheTimeout(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	slots := concurrency(t, 1, 0)
	l := weir.Must(NewLimits(&LimitsOptions{
		Global:   Policy{Limit: Of(yes()), Timeout: time.Hour},
		Policies: map[string]Policy{"p": {Limit: Of(slots)}},
	}))
	p := weir.Must(pipeline.New("t", timeout.New(10*time.Millisecond, nil)))
	long := weir.Must(pipeline.New("t", timeout.New(time.Hour, nil)))
	h := Through(long, nil)(Through(p, nil)(handler(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})))
	s := serve(t, l.Handler(h, "p"), false)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	eventually(t, func() bool { return slots.Statistics().AvailablePermits == 0 }, "it holds the permit")
	eventually(t, func() bool { return slots.Statistics().AvailablePermits == 1 }, "no longer")
}
