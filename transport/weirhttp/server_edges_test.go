package weirhttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// An attempt after the end of the request gets neither the ResponseWriter nor permits, which would never be released.
func TestThrough_NoAttemptAfterTheAnswer(t *testing.T) {
	var late func() error
	keep := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		late = func() error { _, err := next.Run(ctx); return err }
		return next.Run(ctx)
	})
	p := weir.Must(pipeline.New("p", keep))
	slots := concurrency(t, 1, 0)
	ran := 0
	count := handler(func(http.ResponseWriter, *http.Request) { ran++ })
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": PipelinePolicy(p), "slots": {Limiter: slots}}}))
	for _, h := range []http.Handler{Through(p, nil)(count), l.Handler(count, "p", "slots")} {
		ran = 0
		get(h)
		require.ErrorIs(t, late(), ErrOnce)
		assert.Equal(t, 1, ran)
	}
	assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
}

// The deadlines of a hijacked connection are the handler's, even if some of the request's body was left.
func TestServer_HijackedConnectionKeepsItsDeadlines(t *testing.T) {
	hijacked := make(chan net.Conn, 1)
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limiter: yes(), Timeout: time.Minute}}))
	s := serve(t, l.MustWrap()(handler(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, 1)) // sets the deadline
		assert.NoError(t, err)
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			assert.NoError(t, conn.SetReadDeadline(time.Now().Add(-time.Second)))
			hijacked <- conn
		}
		_, _ = r.Body.Read(make([]byte, 1)) // what the server has read already
	})), false)
	client, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
	conn := <-hijacked
	defer conn.Close()
	time.Sleep(20 * time.Millisecond)                                     // the handler returns
	defer time.AfterFunc(3*time.Second, func() { client.Close() }).Stop() // ends the Read if it has no deadline
	_, err = conn.Read(make([]byte, 10))
	var timedOut net.Error
	require.ErrorAs(t, err, &timedOut)
	assert.True(t, timedOut.Timeout())
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
			slots := concurrency(t, 1, 0)
			l := weir.Must(NewLimits(&LimitsOptions{
				Global:   Policy{Limiter: yes(), Timeout: time.Hour},
				Policies: map[string]Policy{"p": {Limiter: slots, Timeout: 100 * time.Millisecond}},
			}))
			s := serve(t, l.MustWrap()(l.Handler(h, "p")), false)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
			eventually(t, func() bool { return slots.Statistics().AvailablePermits == 0 }, "it holds the permit")
			require.Eventually(t, func() bool { return slots.Statistics().AvailablePermits == 1 }, 5*time.Second, time.Millisecond, "no longer")
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			response.Body.Close()
			assert.Equal(t, 200, response.StatusCode)
		})
	}
}

// A circuit breaker further out sees a handler that ran out of time as a failure. A limiter that rejects says nothing
// about the handler.
func TestThrough_TimeoutIsAFailureOfTheHandler(t *testing.T) {
	waits := handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	timedOut := weir.Must(pipeline.New("t", timeout.New(time.Millisecond, nil)))
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"p": {Limiter: yes(), Timeout: time.Millisecond}, "t": PipelinePolicy(timedOut),
		"rejecting": PipelinePolicy(weir.Must(pipeline.New("r", instead(nil, pipeline.ErrRejected)))),
	}}))
	for name, c := range map[string]struct {
		inner  http.Handler
		failed bool
	}{
		"a policy's Timeout":      {l.Handler(waits, "p"), true},
		"a timeout in a pipeline": {Through(timedOut, nil)(waits), true},
		"one that is a policy":    {l.Handler(waits, "t"), true},
		"a rejection":             {Through(weir.Must(pipeline.New("r", instead(nil, pipeline.ErrRejected))), nil)(waits), false},
		"one that is a policy's":  {l.Handler(waits, "rejecting"), false},
	} {
		t.Run(name, func(t *testing.T) {
			var seen error
			w := get(around(t, nil, seeing(&seen))(c.inner))
			assert.Equal(t, 503, w.Code)
			if c.failed {
				assert.EqualError(t, seen, "weirhttp: the handler answered 503 Service Unavailable")
			} else {
				assert.NoError(t, seen)
			}
		})
	}
}

// An answer in place of the handler's has none of the headers that the handler prepared: a cache would keep a 503 for
// as long as the page.
func TestThrough_AnswerHasNotTheHandlersHeader(t *testing.T) {
	gives := handler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=3600")
		w.Header().Add("X-Of", "handler")
		<-r.Context().Done()
	})
	p := weir.Must(pipeline.New("t", timeout.New(time.Millisecond, nil)))
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		"p": {Limiter: bucket(t, 10), Timeout: time.Millisecond}, "t": PipelinePolicy(p), "bucket": {Limiter: bucket(t, 10)},
	}}))
	for name, h := range map[string]http.Handler{
		"a policy's Timeout": l.Handler(gives, "p"), "Through": Through(p, nil)(gives), "a pipeline": l.Handler(gives, "bucket", "t"),
	} {
		t.Run(name, func(t *testing.T) {
			w := get(handler(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Of", "outer")
				h.ServeHTTP(w, r)
			}))
			assert.Equal(t, 503, w.Code)
			assert.Empty(t, w.Result().Header.Get("Cache-Control"))
			assert.Equal(t, []string{"outer"}, w.Result().Header["X-Of"])
		})
	}
}

// With nested handlers, a client that comes back in time for the inner policy must not be too early for the outer one.
func TestServer_RetryAfterIsNotEarlierThanTheQuota(t *testing.T) {
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		`one";t=9`: {Limiter: bucket(t, 1)}, "many": {Limiter: bucket(t, 5)}, "no": {Limiter: no()},
	}}))
	circuit := Through(weir.Must(pipeline.New("c", instead(nil, afterError{}))), nil)(served)
	for _, inner := range []http.Handler{l.Handler(served, "no"), circuit} {
		w := get(l.Handler(inner, "many"))
		assert.Equal(t, "2", w.Result().Header.Get("Retry-After"))
		assert.Len(t, w.Result().Header["Ratelimit"], 1)
		assert.NotContains(t, w.Result().Header.Get("Ratelimit"), ";t=", "the policy is not exhausted")
	}
	w := get(l.Handler(l.Handler(served, "no"), `one";t=9`))
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "3600", w.Result().Header.Get("Retry-After"))
	assert.Equal(t, []string{`"one\";t=9";r=0;t=3600`}, w.Result().Header["Ratelimit"])
}

type afterError struct{}

func (afterError) Error() string                     { return "open" }
func (afterError) Is(target error) bool              { return target == pipeline.ErrRejected }
func (afterError) RetryAfter() (time.Duration, bool) { return 1500 * time.Millisecond, true }

func TestPerKey_IsBoundedByDefault(t *testing.T) {
	factory := limiter.ConcurrencyFactory[string](limiter.ConcurrencyOptions{PermitLimit: 1})
	for _, c := range []struct{ max, keys, granted int }{{0, DefaultMaxPartitions + 1, DefaultMaxPartitions}, {10, 11, 10}, {-1, DefaultMaxPartitions + 1, DefaultMaxPartitions + 1}} {
		l, err := PerKey(factory, &limiter.PartitionedOptions{MaxPartitions: c.max})
		require.NoError(t, err)
		granted := 0
		for i := range c.keys { // all are in use
			lease, err := l.TryAcquire(t.Context(), strconv.Itoa(i), 1)
			require.NoError(t, err)
			if lease.Acquired() {
				granted++
			}
		}
		assert.Equal(t, c.granted, granted)
		require.NoError(t, l.Close())
	}
}

// If a lease panics when it is given back, the others are given back nevertheless.
func TestServer_PanicOfALeaseKeepsNoOther(t *testing.T) {
	first := yes()
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"first": {Limiter: first}, "panics": {Limiter: panicking{}}, "no": {Limiter: no()}}}))
	assert.Panics(t, func() { get(l.Handler(served, "first", "panics", "no")) })
	first.check(t, 1, 0, 1)
}

type panicking struct{}

func (panicking) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	return limiter.Granted(n, func() { panic("lost") }), nil
}

func (p panicking) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.TryAcquire(ctx, n)
}

// Handlers can call Charge from several goroutines, even after they have returned.
func TestCharge_AllPoliciesConcurrentSafe(t *testing.T) {
	spent, slots := bucket(t, 1000), concurrency(t, 1000, 0)
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"spent": {Limiter: spent, Metered: true, Cost: func(*http.Request) int { return 10 }}, "lent": {Limiter: slots, Metered: true},
	}}))
	var wg sync.WaitGroup
	for range 50 {
		within(t, l, func(r *http.Request) {
			for i := range 4 {
				wg.Go(func() {
					for range 5 {
						_, _ = Charge(r.Context(), 3-2*i)
						for _, lease := range Leases(r.Context()) {
							_ = lease.Permits()
						}
					}
				})
			}
		}, "spent", "lent")
	}
	wg.Wait()
	assert.EqualValues(t, 1000, slots.Statistics().AvailablePermits)
}

// A deadline that the handler sets applies if it is earlier than the Timeout, and cannot postpone the Timeout.
func TestServer_DeadlinesOfTheHandler(t *testing.T) {
	past, none := func() time.Time { return time.Now().Add(-time.Second) }, func() time.Time { return time.Time{} }
	for name, c := range map[string]struct {
		timeout  time.Duration
		deadline func() time.Time
	}{
		"the handler's is earlier": {time.Hour, past},
		"ours is earlier":          {50 * time.Millisecond, none},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && c.timeout < time.Hour {
				t.Skip("takes a second")
			}
			done := make(chan struct{})
			l := weir.Must(NewLimits(&LimitsOptions{
				Global:   Policy{Limiter: yes(), Timeout: time.Hour},
				Policies: map[string]Policy{"p": {Limiter: yes(), Timeout: c.timeout}},
			}))
			s := serve(t, l.MustWrap()(l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
				defer close(done)
				control := http.NewResponseController(w)
				assert.NoError(t, control.SetReadDeadline(c.deadline()))
				_, err := io.ReadAll(r.Body)
				assert.Error(t, err)
				assert.NoError(t, control.SetWriteDeadline(c.deadline()))
				for err = nil; err == nil; {
					_, err = w.Write(make([]byte, 1<<16))
				}
			}), "p")), false)
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
			select {
			case <-done:
			case <-time.After(5 * time.Second):
				t.Error("it goes on")
			}
		})
	}
}

// Deadlines of the handler and of middleware further out stay in force.
func TestServer_DeadlinesOfTheProgramStay(t *testing.T) {
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limiter: yes(), Timeout: time.Minute}, Policies: map[string]Policy{"p": {Limiter: yes(), Timeout: time.Second}}}))
	near, far := time.Now().Add(time.Second/2), time.Now().Add(time.Hour)
	raw := &deadlines{ResponseWriter: httptest.NewRecorder(), read: near, write: near}
	l.MustWrap()(l.Handler(handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		_, _ = io.WriteString(w, "x")
		assert.True(t, raw.write.Equal(near), raw.write)
		assert.True(t, raw.read.Equal(near), raw.read)
		control := http.NewResponseController(w)
		assert.NoError(t, control.SetWriteDeadline(far))
		assert.NoError(t, control.SetReadDeadline(far))
	}), "p")).ServeHTTP(raw, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x")))
	assert.True(t, raw.write.Equal(far), raw.write)
	assert.True(t, raw.read.Equal(far), raw.read)
}

type deadlines struct {
	http.ResponseWriter
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error  { d.read = t; return nil }
func (d *deadlines) SetWriteDeadline(t time.Time) error { d.write = t; return nil }
