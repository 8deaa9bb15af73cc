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
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

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

// measuring is a Measurer that adds up for how long permits were held.
type measuring struct {
	pipeline.ListenerFunc
	held atomic.Int64
}

func (m *measuring) Hooks() pipeline.Hooks {
	h := m.ListenerFunc.Hooks()
	h.OnMeasurement = func(ctx context.Context, e pipeline.Event) func(context.Context, pipeline.Event) {
		m.OnMeasurement(ctx, e)
		return m.OnMeasurement
	}
	return h
}

func (m *measuring) OnMeasurement(_ context.Context, e pipeline.Event) {
	if e.Name == ratelimit.MeasureLease {
		m.held.Add(int64(e.Duration))
	}
}

func TestTransport_HoldsLeaseUntilBodyClosed(t *testing.T) {
	bucket := func() limiter.Limiter { return weir.Must(limiter.NewTokenBucket(limiter.PerSecond(1000, 1000))) }
	perHost := func(f limiter.Factory[string]) limiter.Partitioned[string] {
		return weir.Must(limiter.NewPartitionedByKey(func(host string) string { return host }, f, nil))
	}
	cases := map[string]func() []pipeline.Strategy{
		"concurrency": func() []pipeline.Strategy { return []pipeline.Strategy{ratelimit.New(slots(2, 100), nil)} },
		"chain": func() []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.New(weir.Must(limiter.Chain(bucket(), slots(2, 100))), nil)}
		},
		"partitioned": func() []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.NewPartitioned(perHost(limiter.FactoryFor[string](
				limiter.ConcurrencyOptions{PermitLimit: 2, QueueLimit: 100})), weirhttp.HostFrom, nil)}
		},
		"chain per host": func() []pipeline.Strategy {
			return []pipeline.Strategy{ratelimit.NewPartitioned(perHost(func(string) (limiter.Limiter, error) {
				return limiter.Chain(bucket(), slots(2, 100))
			}), weirhttp.HostFrom, nil)}
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
		for how, listener := range map[string]pipeline.Listener{"": nil, ", measured": &measuring{ListenerFunc: func(context.Context, pipeline.Event) {}}} {
			t.Run(name+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := weir.Must(pipeline.Config{Name: "partner", Strategies: strategies(), Listener: listener}.Build())
					assert.EqualValues(t, 2, mostAtOnce(t, p, nil))
				})
			})
		}
	}
}

// mostAtOnce sends 20 requests at once, and returns how many responses were in use at most.
func mostAtOnce(t *testing.T, p *pipeline.Pipeline, o *weirhttp.TransportOptions) int64 {
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

func TestTransport_HoldsLeaseInReloadedPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry.New(nil)
		defer r.Close(context.Background())
		limit := 1
		require.NoError(t, r.Define("partner", func(b *registry.Builder) error {
			b.Add(ratelimit.New(b.Concurrency("partner", limiter.ConcurrencyOptions{PermitLimit: limit, QueueLimit: 100}), nil))
			return nil
		}))
		p := weir.Must(r.Get("partner"))
		assert.EqualValues(t, 1, mostAtOnce(t, p, nil))

		var base streaming
		resp, err := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: &base})).RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		limit = 3
		require.NoError(t, r.Reload(t.Context()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			assert.EqualValues(t, 2, mostAtOnce(t, p, nil), "the response from before the reload has one of the three")
		}()
		<-done
		_ = resp.Body.Close()
		assert.EqualValues(t, 3, mostAtOnce(t, p, nil))
	})
}

// A server that streams over a real connection, with each version of HTTP.
func TestTransport_HoldsLeaseOverNetwork(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			var use inUse
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/nothing":
					w.WriteHeader(http.StatusNoContent)
					return
				case "/empty":
					return
				}
				use.begin()
				defer use.end()
				for range 5 {
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
					time.Sleep(2 * time.Millisecond)
				}
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			l := slots(2, 100)
			client := *server.Client()
			client.Transport = roundTripper(t, client.Transport, nil, ratelimit.New(l, nil), timeout.New(time.Minute, nil))
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					resp, err := client.Get(server.URL + "/stream")
					if assert.NoError(t, err) {
						assert.Len(t, readAll(t, resp), 5)
					}
				})
			}
			all.Wait()
			assert.EqualValues(t, 2, use.most.Load())
			assert.EqualValues(t, 2, l.Statistics().AvailablePermits)

			for _, path := range []string{"/nothing", "/empty"} {
				for _, method := range []string{http.MethodHead, http.MethodGet} {
					resp, err := client.Do(newRequest(t, method, server.URL+path, ""))
					require.NoError(t, err)
					assert.EqualValues(t, 2, l.Statistics().AvailablePermits, "%s %s: there is no body to wait for", method, path)
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
	t.Run("an upgrade", func(t *testing.T) {
		l := slots(1, 0)
		base := plainBase(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: &duplex{ReadCloser: textBody("hi")}, Request: r}, nil
		})
		resp := get(t.Context(), t, base, ratelimit.New(l, nil))
		_, ok := resp.Body.(io.ReadWriteCloser)
		assert.True(t, ok)
		_, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Zero(t, free(l), "it can still be written")
		require.NoError(t, resp.Body.Close())
		assert.EqualValues(t, 1, free(l))
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
	t.Run("a failure", func(t *testing.T) {
		l := slots(1, 0)
		base := &fakeBase{answer: inTurn(http.StatusServiceUnavailable, http.StatusOK)}
		resp := get(t.Context(), t, base, retrying(retry.Options{Delay: time.Microsecond}), ratelimit.New(l, nil))
		assert.Zero(t, free(l), "the next attempt has it")
		_ = resp.Body.Close()
		assert.EqualValues(t, 1, free(l))
	})
	t.Run("a fallback", func(t *testing.T) {
		l := slots(1, 0)
		own := &http.Response{StatusCode: http.StatusOK, Body: textBody("cached")}
		base := &fakeBase{answer: inTurn(http.StatusServiceUnavailable)}
		resp := get(t.Context(), t, base, ratelimit.New(l, nil), fallback.New(
			func(context.Context, any, error) (any, error) { return own, nil }, nil))
		assert.Same(t, own, resp)
		assert.EqualValues(t, 1, free(l), "the response is not the server's")
		_ = resp.Body.Close()
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

func TestTransport_MeasuresHeldLease(t *testing.T) {
	for name, s := range map[string]pipeline.Strategy{
		"ratelimit": ratelimit.New(slots(1, 0), nil),
		"adaptive":  adaptive.New(weir.Must(adaptive.NewLimiter(nil)), nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &measuring{ListenerFunc: func(context.Context, pipeline.Event) {}}
				p := weir.Must(pipeline.Config{Name: "partner", Strategies: []pipeline.Strategy{s}, Listener: m}.Build())
				transport := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: new(streaming)}))
				resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
				require.NoError(t, err)
				assert.Zero(t, m.held.Load())
				assert.Len(t, readAll(t, resp), 10)
				assert.Equal(t, time.Second, time.Duration(m.held.Load()))
			})
		})
	}
}

// Permits that are lent cost the function that releases them; others cost nothing more than without a body.
func TestTransport_HoldAllocations(t *testing.T) {
	r := benchmarkRequest(t).WithContext(context.Background())
	base := stub{body: emptyBody{strings.NewReader("")}}
	for name, c := range map[string]struct {
		limiter limiter.Limiter
		want    float64
	}{
		"bucket":      {weir.Must(limiter.NewTokenBucket(limiter.PerSecond(1e6, 1e6))), 19},
		"concurrency": {slots(1, 0), 24},
	} {
		p := weir.Must(pipeline.New("api", ratelimit.New(c.limiter, nil)))
		transport := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base}))
		assert.Equal(t, c.want, testing.AllocsPerRun(100, func() {
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}), name)
	}
}
