package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

// readFull reads until p is full or the body ends.
func readFull(resp *http.Response, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := resp.Body.Read(p[n:])
		n += m
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// endless is a body that never ends, with a delay before each Read.
type endless struct {
	each time.Duration
	read int
	done chan struct{}
}

func (e *endless) Read(p []byte) (int, error) {
	if e.each > 0 {
		select {
		case <-time.After(e.each):
		case <-e.done:
			return 0, errors.New("closed")
		}
	}
	p = p[:min(len(p), 100)]
	e.read += len(p)
	return len(p), nil
}

func (e *endless) Close() error {
	select {
	case <-e.done:
	default:
		close(e.done)
	}
	return nil
}

// plainBase is a base that does not change bodies.
type plainBase func(*http.Request) (*http.Response, error)

func (f plainBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport_NoBody(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		var ctx context.Context
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			ctx = r.Context()
			return &http.Response{StatusCode: http.StatusNoContent, Body: body, Request: r}, nil
		})
		resp, err := roundTripper(t, base, nil, timeout.New(time.Minute, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		assert.Equal(t, http.NoBody, resp.Body)
		assert.Error(t, ctx.Err(), "an empty body need not be closed")
		assert.NoError(t, resp.Body.Close())
	}
}

// Close ends a Read that waits.
func TestTransport_CloseWhileReadingConcurrentSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: &endless{each: time.Hour, done: make(chan struct{})}, Request: r}, nil
		})
		resp, err := roundTripper(t, base, nil, timeout.New(time.Minute, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = resp.Body.Close() })
		began := time.Now()
		_, err = resp.Body.Read(make([]byte, 10))
		assert.ErrorContains(t, err, "closed")
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// A body of any type is read before the next attempt, also one whose values cannot be compared.
func TestTransport_BodyThatCannotBeCompared(t *testing.T) {
	answer := inTurn(503, 200)
	number := -1
	base := plainBase(func(r *http.Request) (*http.Response, error) {
		number++
		resp, err := answer(r, number)
		resp.Body = struct {
			io.ReadCloser
			_ func()
		}{ReadCloser: resp.Body}
		return resp, err
	})
	resp, err := roundTripper(t, base, nil, retrying(retry.Options{Delay: -1})).RoundTrip(newRequest(t, http.MethodGet, url, ""))
	require.NoError(t, err)
	assert.Equal(t, 200, resp.StatusCode)
	assert.NoError(t, resp.Body.Close())
}

// Only the body of an upgrade can be written. One of a program that has a method Write ends with its last byte as others do.
func TestTransport_BodyWithWriteThatIsNoUpgrade(t *testing.T) {
	l := slots(1, 0)
	base := plainBase(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Request: r, Body: struct {
			io.Writer
			io.ReadCloser
		}{io.Discard, textBody("all")}}, nil
	})
	resp, err := roundTripper(t, base, nil, ratelimit.New(l, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
	require.NoError(t, err)
	_, _ = io.ReadAll(resp.Body)
	assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
}

// At most 4 KiB of a failure's body are read before the next attempt, for at most 50 ms.
func TestTransport_DrainsTheBodyOfAFailure(t *testing.T) {
	for each, c := range map[time.Duration]struct {
		read int
		took time.Duration
	}{0: {4096, time.Second}, time.Second: {0, 1050 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			body := &endless{each: each, done: make(chan struct{})}
			base := &fakeBase{answer: func(_ *http.Request, number int) (*http.Response, error) {
				if number > 0 {
					return answering(200), nil
				}
				resp := answering(503)
				resp.Body = body
				return resp, nil
			}}
			began := time.Now()
			resp, err := roundTripper(t, base, nil, retrying(retry.Options{Delay: time.Second})).RoundTrip(newRequest(t, http.MethodGet, url, ""))
			require.NoError(t, err)
			readAll(t, resp)
			assert.Equal(t, c.read, body.read)
			assert.Equal(t, c.took, time.Since(began))
			assert.EqualValues(t, 2, base.closed.Load())
		})
	}
}

// If a strategy still reads the body of a failure when the next attempt begins, the body is not buffered. It is closed
// in the end, and its attempt ends.
func TestTransport_FailureThatAStrategyReadsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(r *http.Request, number int) (*http.Response, error) {
			if number > 0 {
				return inTurn(200)(r, number)
			}
			resp := answering(503)
			resp.Body = &endless{each: time.Hour, done: make(chan struct{})}
			return resp, nil
		}}
		read := make(chan error, 1)
		strategy := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			value, err := next.Run(ctx)
			resp, _ := value.(*http.Response)
			require.NotNil(t, resp, "%v", err)
			go func() {
				_, err := resp.Body.Read(make([]byte, 10))
				read <- err
			}()
			synctest.Wait() // it reads
			return next.Run(ctx)
		})
		transport := roundTripper(t, base, nil, strategy, timeout.New(time.Minute, nil))
		began := time.Now()
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		readAll(t, resp)
		assert.ErrorContains(t, <-read, "closed")
		assert.Zero(t, time.Since(began))
		assert.EqualValues(t, 2, base.closed.Load())
		assert.Error(t, base.requests[0].Context().Err(), "the attempt has ended")
	})
}

// streamingInTurn is a streaming whose responses have the statuses in turn, and then always the last.
type streamingInTurn struct {
	streaming
	statuses []int
	requests atomic.Int64
}

func (s *streamingInTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	number := min(int(s.requests.Add(1)), len(s.statuses))
	resp, err := s.streaming.RoundTrip(r)
	if err == nil {
		resp.StatusCode = s.statuses[number-1]
	}
	return resp, err
}

// With a limit of 1, what a strategy does after a response that it handles waits for no permit of that response, whether the
// limiter has a queue or not.
func TestTransport_HandledResponseHoldsNoPermit(t *testing.T) {
	notFound := pipeline.HandleResult(func(resp *http.Response, err error) bool {
		return err == nil && resp.StatusCode == http.StatusNotFound
	})
	always := func(any, error) bool { return true }
	cases := map[string]struct {
		strategies []pipeline.Strategy // outside of the limiter
		statuses   []int
		requests   int64
		took       time.Duration
		released   bool // the response that the caller gets was handled, too
	}{
		"retry": {
			strategies: []pipeline.Strategy{retry.New(&retry.Options{Handle: notFound, Delay: time.Minute})},
			statuses:   []int{http.StatusNotFound, http.StatusOK}, requests: 2, took: time.Minute,
		},
		"hedge": {
			strategies: []pipeline.Strategy{hedge.New(&hedge.Options{Handle: notFound, Delay: time.Second})},
			statuses:   []int{http.StatusNotFound, http.StatusOK}, requests: 2,
		},
		"retry around a hedge that returns the first": {
			strategies: []pipeline.Strategy{
				retry.New(&retry.Options{Handle: notFound, Delay: time.Minute}), hedge.New(&hedge.Options{Handle: always, Delay: -1}),
			},
			statuses: []int{http.StatusNotFound, http.StatusOK}, requests: 4, took: time.Minute, released: true,
		},
		"fallback": {
			strategies: []pipeline.Strategy{fallback.New(func(_ context.Context, result any, err error) (any, error) { return result, err },
				&fallback.Options{Handle: notFound})},
			statuses: []int{http.StatusNotFound}, requests: 1, released: true,
		},
	}
	for name, c := range cases {
		for how, limit := range map[string]func() limiterOfOne{
			"":           func() limiterOfOne { return slots(1, 0) },
			", adaptive": func() limiterOfOne { return adaptiveOfOne() },
		} {
			t.Run(name+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					outside, l := slots(1, 0), limit()
					base := &streamingInTurn{statuses: c.statuses}
					strategies := append([]pipeline.Strategy{ratelimit.New(outside, nil)}, c.strategies...)
					transport := roundTripper(t, base, nil, append(strategies, adaptive.New(l, nil))...)
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // so that a wait for itself ends
					defer cancel()
					began := time.Now()
					resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, "").WithContext(ctx))
					require.NoError(t, err)
					assert.Equal(t, c.statuses[len(c.statuses)-1], resp.StatusCode)
					assert.Equal(t, c.requests, base.requests.Load())
					assert.InDelta(t, c.took, time.Since(began), float64(400*time.Millisecond), "plus the first bytes of the bodies that are dropped")
					assert.Equal(t, c.released, l.Statistics().AvailablePermits == 1)
					assert.Zero(t, outside.Statistics().AvailablePermits, "a strategy further out holds its permit")
					require.NoError(t, resp.Body.Close())
					assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
					assert.EqualValues(t, 1, outside.Statistics().AvailablePermits)
					assert.Zero(t, base.now.Load(), "all bodies are closed")
				})
			})
		}
	}
}

// A limiterOfOne is a limiter with a limit of 1.
type limiterOfOne interface {
	limiter.Limiter
	limiter.StatisticsProvider
}

func adaptiveOfOne() *adaptive.Limiter {
	return weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 1, InitialLimit: 1, MaxLimit: 1}))
}

// A request that cannot be sent again has its response whole, although a retry has dropped it.
func TestTransport_DroppedResponseIsReturned(t *testing.T) {
	l := slots(1, 0)
	long := strings.Repeat("x", 10<<10)
	base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: textBody(long)}, nil
	}}
	always := retry.New(&retry.Options{Handle: func(any, error) bool { return true }, MaxRetries: 1, Delay: -1})
	resp, err := roundTripper(t, base, nil, always, ratelimit.New(l, nil)).RoundTrip(newRequest(t, http.MethodPost, url, "body"))
	require.NoError(t, err)
	assert.Equal(t, long, readAll(t, resp))
	assert.Equal(t, 1, base.count())
	assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
}

// inUse counts what is in use at once.
type inUse struct{ now, most atomic.Int64 }

func (u *inUse) begin() {
	now := u.now.Add(1)
	for most := u.most.Load(); now > most && !u.most.CompareAndSwap(most, now); most = u.most.Load() {
	}
}

func (u *inUse) end() { u.now.Add(-1) }

// streaming is a base transport whose responses take a second to read. A response is in use until its body ends.
type streaming struct {
	inUse
	header time.Duration // how long the header takes
}

func (s *streaming) RoundTrip(r *http.Request) (*http.Response, error) {
	s.begin()
	select {
	case <-time.After(s.header):
	case <-r.Context().Done():
		s.end()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Body: &stream{of: s, ctx: r.Context()}, Request: r}, nil
}

type stream struct {
	of   *streaming
	ctx  context.Context
	read int
	once sync.Once
}

func (s *stream) Read(p []byte) (int, error) {
	if s.read == 10 {
		s.once.Do(s.of.end)
		return 0, io.EOF
	}
	select {
	case <-time.After(100 * time.Millisecond):
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
	s.read++
	return copy(p, "x"), nil
}

func (s *stream) Close() error {
	s.once.Do(s.of.end)
	return nil
}

func slots(permits, queue int) *limiter.Concurrency {
	return weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits, QueueLimit: queue}))
}

func TestTransport_HoldsLeaseUntilBodyClosed(t *testing.T) {
	perHost := func(f limiter.Factory[string]) limiter.Partitioned[string] {
		return weir.Must(limiter.NewPartitionedByKey(func(host string) string { return host }, f, nil))
	}
	cases := map[string]func() []pipeline.Strategy{
		"concurrency": func() []pipeline.Strategy { return []pipeline.Strategy{ratelimit.New(slots(2, 100), nil)} },
		"partitioned": func() []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.NewPartitioned(perHost(limiter.FactoryFor[string](
				limiter.ConcurrencyOptions{PermitLimit: 2, QueueLimit: 100})), weirhttp.HostFrom, nil)}
		},
		"adaptive": func() []pipeline.Strategy {
			l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 2, MaxLimit: 2, QueueLimit: 100}))
			return []pipeline.Strategy{adaptive.New(l, nil)}
		},
		"outside of the others": func() []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.New(slots(2, 100), nil), retrying(retry.Options{}), timeout.New(time.Minute, nil)}
		},
		"inside the others": func() []pipeline.Strategy {
			return []pipeline.Strategy{timeout.New(time.Minute, nil), retrying(retry.Options{}), ratelimit.New(slots(2, 100), nil)}
		},
		"two limiters": func() []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.New(slots(3, 100), nil), ratelimit.New(slots(2, 100), nil)}
		},
		"in an embedded pipeline": func() []pipeline.Strategy {
			return []pipeline.Strategy{pipeline.Embed(weir.Must(pipeline.New("inner", ratelimit.New(slots(2, 100), nil))))}
		},
	}
	for name, strategies := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				assert.EqualValues(t, 2, mostAtOnce(t, weir.Must(pipeline.New("partner", strategies()...))))
			})
		})
	}
}

// mostAtOnce sends 20 requests at once, and returns how many responses were in use at most.
func mostAtOnce(t *testing.T, p *pipeline.Pipeline) int64 {
	t.Helper()
	var base streaming
	transport := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: &base}))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
			if !assert.NoError(t, err) {
				return
			}
			if i%2 == 0 { // the others read to the end, and never close
				defer resp.Body.Close()
				_, err = io.ReadFull(resp.Body, make([]byte, 5))
			} else {
				_, err = io.ReadAll(resp.Body)
			}
			assert.NoError(t, err)
		})
	}
	all.Wait()
	return base.most.Load()
}

// net/http has other bodies for an empty answer in each version of HTTP.
func TestTransport_EmptyBodyOverNetworkHoldsNoLease(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/nothing":
					w.WriteHeader(http.StatusNoContent)
				case "/text":
					_, _ = io.WriteString(w, "x")
				}
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			l := slots(1, 0)
			client := *server.Client()
			client.Transport = roundTripper(t, client.Transport, nil, ratelimit.New(l, nil), timeout.New(time.Minute, nil))
			for _, path := range []string{"/nothing", "/empty", "/text"} {
				for _, method := range []string{http.MethodHead, http.MethodGet} {
					resp, err := client.Do(newRequest(t, method, server.URL+path, ""))
					require.NoError(t, err)
					held := path == "/text" && method == http.MethodGet
					assert.Equal(t, held, l.Statistics().AvailablePermits == 0, "%s %s", method, path)
					_ = resp.Body.Close()
				}
			}
		})
	}
}

func TestTransport_LeaseOfUnreadBody(t *testing.T) {
	free := func(l *limiter.Concurrency) int64 { return l.Statistics().AvailablePermits }
	get := func(ctx context.Context, t *testing.T, base http.RoundTripper, strategies ...pipeline.Strategy) *http.Response {
		t.Helper()
		resp, err := roundTripper(t, base, nil, strategies...).RoundTrip(newRequest(t, http.MethodGet, url, "").WithContext(ctx))
		require.NoError(t, err)
		return resp
	}
	t.Run("the caller's context ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := slots(1, 0)
			ctx, cancel := context.WithCancel(t.Context())
			resp := get(ctx, t, new(streaming), ratelimit.New(l, nil))
			assert.Zero(t, free(l))
			cancel()
			synctest.Wait()
			assert.EqualValues(t, 1, free(l))
			_ = resp.Body.Close()
			assert.EqualValues(t, 1, free(l), "it is given back once")
		})
	})
	t.Run("the timeout of the strategies ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := slots(1, 0)
			resp := get(context.Background(), t, new(streaming), timeout.New(100*time.Millisecond, nil), ratelimit.New(l, nil)) //nolint:bodyclose // readAll closes it
			time.Sleep(time.Second)
			assert.Zero(t, free(l), "only the caller's context bounds the body")
			assert.Len(t, readAll(t, resp), 10)
			assert.EqualValues(t, 1, free(l))
		})
	})
	t.Run("reading fails", func(t *testing.T) {
		l := slots(1, 0)
		broken := &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(&failingReader{errors.New("reset")})}
		resp := get(t.Context(), t, plainBase(func(*http.Request) (*http.Response, error) { return broken, nil }), ratelimit.New(l, nil))
		assert.Zero(t, free(l))
		_, err := resp.Body.Read(make([]byte, 1))
		require.ErrorContains(t, err, "reset")
		assert.EqualValues(t, 1, free(l))
		_ = resp.Body.Close()
	})
	t.Run("an upgraded connection outlives the context of its request", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if !assert.NoError(t, err) {
				return
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_ = rw.Flush()
			_, _ = io.Copy(conn, rw)
		}))
		defer server.Close()
		l := slots(1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		r := newRequest(t, http.MethodGet, server.URL, "").WithContext(ctx)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "echo")
		resp, err := roundTripper(t, new(http.Transport), nil, ratelimit.New(l, nil)).RoundTrip(r) //nolint:bodyclose // closed as connection
		require.NoError(t, err)
		cancel()
		connection, ok := resp.Body.(io.ReadWriteCloser)
		require.True(t, ok)
		_, err = io.WriteString(connection, "ping")
		require.NoError(t, err)
		_, err = io.ReadFull(connection, make([]byte, 4))
		require.NoError(t, err)
		assert.Zero(t, free(l))
		require.NoError(t, connection.Close())
		assert.EqualValues(t, 1, free(l))
	})
	t.Run("a pipeline that panics", func(t *testing.T) {
		l := slots(1, 0)
		base := &fakeBase{answer: inTurn(http.StatusOK)}
		panics := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			_, _ = next.Run(ctx)
			panic("outside")
		})
		assert.Panics(t, func() { get(t.Context(), t, base, panics, ratelimit.New(l, nil)) }) //nolint:bodyclose // there is no response
		assert.EqualValues(t, 1, free(l))
	})
}

// failingReader fails at once.
type failingReader struct{ err error }

func (f *failingReader) Read([]byte) (int, error) { return 0, f.err }

// The lease of an attempt of a hedge that has lost is released with its body.
func TestTransport_HoldsLeaseOfHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slots(4, 0)
		base := &streaming{header: time.Second}
		hedged := hedge.New(&hedge.Options{Delay: 500 * time.Millisecond, MaxHedges: 1})
		resp, err := roundTripper(t, base, nil, hedged, ratelimit.New(l, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		assert.EqualValues(t, 3, l.Statistics().AvailablePermits, "only the winner holds a permit")
		assert.EqualValues(t, 2, base.most.Load())
		assert.Len(t, readAll(t, resp), 10)
		assert.EqualValues(t, 4, l.Statistics().AvailablePermits)
	})
}

// Both attempts have a response when the hedge decides.
func TestTransport_HoldsLeaseOfHedgeWithTwoResponses(t *testing.T) {
	for range 200 {
		l := slots(2, 0)
		base := &fakeBase{answer: inTurn(http.StatusOK)}
		h := &hedging{attempts: 2}
		resp, err := roundTripper(t, base, nil, h, ratelimit.New(l, nil)).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		h.losers.Wait()
		assert.EqualValues(t, 1, l.Statistics().AvailablePermits)
		_ = resp.Body.Close()
		assert.EqualValues(t, 2, l.Statistics().AvailablePermits)
		assert.Equal(t, base.opened.Load(), base.closed.Load())
	}
}
