package weirhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirhttp"
)

func newGate(t *testing.T, l limiter.Partitioned[string], o *weirhttp.GateOptions) *weirhttp.Gate {
	t.Helper()
	gate, err := weirhttp.NewGate(l, o)
	require.NoError(t, err)
	return gate
}

func TestGate_Pause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, nil, nil)
		ctx := t.Context()
		lease, err := gate.Acquire(ctx, "a", 1)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
		gate.Pause("a", 10*time.Second)
		gate.Pause("a", time.Second) // does not shorten it
		time.Sleep(4 * time.Second)
		for _, acquire := range []func(context.Context, string, int) (limiter.Lease, error){gate.Acquire, gate.TryAcquire} {
			lease, err = acquire(ctx, "a", 1)
			require.NoError(t, err)
			assert.False(t, lease.Acquired())
			assert.Equal(t, weirhttp.ReasonPaused, lease.Reason())
			left, ok := lease.RetryAfter()
			assert.True(t, ok)
			assert.Equal(t, 6*time.Second, left)
			lease, err = acquire(ctx, "b", 1)
			require.NoError(t, err)
			assert.True(t, lease.Acquired())
		}
		time.Sleep(6 * time.Second)
		lease, err = gate.TryAcquire(ctx, "a", 1)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
	})
}

func TestGate_Acquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, nil, &weirhttp.GateOptions{QueueLimit: 2})
		gate.Pause("a", 10*time.Second)
		began := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				lease, err := gate.Acquire(t.Context(), "a", 1)
				assert.NoError(t, err)
				assert.True(t, lease.Acquired())
				assert.Equal(t, 15*time.Second, time.Since(began))
			})
		}
		synctest.Wait()
		lease, err := gate.Acquire(t.Context(), "a", 1)
		require.NoError(t, err)
		assert.False(t, lease.Acquired(), "no room")
		gate.Pause("a", 15*time.Second) // once more, while they wait
		wg.Wait()
	})
}

func TestGate_AcquireEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, nil, &weirhttp.GateOptions{QueueLimit: 1})
		gate.Pause("a", time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := gate.Acquire(ctx, "a", 1)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = gate.Acquire(ctx, "a", 1)
		assert.ErrorIs(t, err, context.Canceled)

		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		lease, err := gate.Acquire(short, "a", 1)
		require.NoError(t, err)
		assert.False(t, lease.Acquired())
		assert.Zero(t, time.Since(began), "no use in waiting")
		_, err = gate.Acquire(t.Context(), "a", -1)
		assert.ErrorIs(t, err, limiter.ErrPermitCount)
		_, err = gate.TryAcquire(t.Context(), "b", -1)
		assert.ErrorIs(t, err, limiter.ErrPermitCount)
	})
}

func TestGate_MaxHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, nil, &weirhttp.GateOptions{MaxHosts: 3})
		paused := func() (hosts []int) {
			for i := range 20 {
				if _, ok := gate.Paused(strconv.Itoa(i)); ok {
					hosts = append(hosts, i)
				}
			}
			return hosts
		}
		for i := range 10 {
			gate.Pause(strconv.Itoa(i), time.Duration(10-i)*time.Second)
		}
		assert.Equal(t, []int{0, 1, 2}, paused(), "the pauses that end first are forgotten")
		gate.Pause("10", time.Minute)
		assert.Equal(t, []int{0, 1, 10}, paused())
		time.Sleep(20 * time.Second)
		gate.Pause("11", time.Second)
		gate.Pause("12", time.Second)
		assert.Equal(t, []int{10, 11, 12}, paused(), "pauses that have ended are forgotten")
	})
}

func TestGate_AsksTheLimiterBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour})
		behind, err := limiter.NewPartitioned(func(host string) limiter.Partition[string] {
			return limiter.Partition[string]{Key: host, New: one}
		}, nil)
		require.NoError(t, err)
		defer behind.Close()
		gate := newGate(t, behind, nil)
		for _, granted := range []bool{true, false} {
			lease, err := gate.Acquire(t.Context(), "a", 1)
			require.NoError(t, err)
			assert.Equal(t, granted, lease.Acquired())
		}
		lease, err := gate.TryAcquire(t.Context(), "b", 1)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
	})
}

func TestGateOptions_Validate(t *testing.T) {
	_, err := weirhttp.NewGate(nil, &weirhttp.GateOptions{MaxHosts: -1, QueueLimit: -1})
	assert.ErrorIs(t, err, weir.ErrInvalidOptions)
	assert.ErrorContains(t, err, "MaxHosts must be at least 1, or 0 for 1024, got -1")
	assert.ErrorContains(t, err, "QueueLimit must be at least 0, got -1")
	_, err = weirhttp.NewGate((*limiter.PartitionedLimiter[string, string])(nil), nil)
	assert.EqualError(t, err, "weirhttp: l must not be a nil pointer")
}

// One request gets Retry-After, and all requests to the host wait.
func TestGate_InATransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var early atomic.Int64
		base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
			if time.Since(began) < 10*time.Second {
				early.Add(1)
				return answering(503, "Retry-After", "10"), nil
			}
			return answering(200), nil
		}}
		gate := newGate(t, nil, nil)
		transport := roundTripper(t, base, &weirhttp.TransportOptions{PauseOnRetryAfter: gate},
			retrying(retry.Options{}), ratelimit.NewPartitioned(gate, weirhttp.HostFrom, nil))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				r := newRequest(t, http.MethodPost, url, "x")
				if i == 0 {
					r = newRequest(t, http.MethodGet, url, "")
				}
				resp, err := transport.RoundTrip(r)
				if assert.NoError(t, err) {
					assert.Equal(t, 200, resp.StatusCode)
					readAll(t, resp)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, 1, early.Load())
		assert.Equal(t, 21, base.count())
		assert.Equal(t, base.opened.Load(), base.closed.Load())
	})
}

func TestGate_OtherStatusesDoNotPause(t *testing.T) {
	base := &fakeBase{answer: func(_ *http.Request, number int) (*http.Response, error) {
		return answering([]int{502, 200, 301, 429}[number], "Retry-After", []string{"9", "9", "9", "0"}[number]), nil
	}}
	gate := newGate(t, nil, nil)
	p := weir.Must(pipeline.New("test", ratelimit.NewPartitioned(gate, weirhttp.HostFrom, nil)))
	transport := weir.Must(weirhttp.NewTransport(p, &weirhttp.TransportOptions{Base: base, PauseOnRetryAfter: gate}))
	for range 4 {
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		readAll(t, resp)
		_, paused := gate.Paused("api.example.com")
		assert.False(t, paused)
	}
}

func TestGate_ConcurrentSafe(t *testing.T) {
	gate := newGate(t, nil, &weirhttp.GateOptions{MaxHosts: 4, QueueLimit: 3})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				host := strconv.Itoa((i + j) % 6)
				if j%5 == 0 {
					gate.Pause(host, 100*time.Microsecond)
				}
				if _, err := gate.Acquire(t.Context(), host, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A request that waits keeps its place when the pause is renewed, even if another request comes at that moment.
func TestGate_RenewedPauseKeepsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, nil, &weirhttp.GateOptions{QueueLimit: 1})
		gate.Pause("a", time.Second)
		ctx := &askedContext{Context: t.Context()}
		ctx.ask = func() { // it looks at the deadline before each wait
			if ctx.asked++; ctx.asked == 1 {
				return
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				lease, err := gate.Acquire(t.Context(), "a", 1)
				assert.NoError(t, err)
				assert.False(t, lease.Acquired(), "the place is taken")
			}()
			select {
			case <-ended:
			case <-time.After(time.Millisecond):
			}
		}
		time.AfterFunc(time.Second/2, func() { gate.Pause("a", time.Minute) })
		lease, err := gate.Acquire(ctx, "a", 1)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
		assert.Equal(t, 2, ctx.asked)
	})
}

type askedContext struct {
	context.Context
	ask   func()
	asked int
}

func (c *askedContext) Deadline() (time.Time, bool) {
	c.ask()
	return c.Context.Deadline()
}

// A pause is renewed after its end, but before the requests that wait have seen that it ended: they wait for the end of
// the new one.
func TestGate_KeepsPausesThatRequestsWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, nil, &weirhttp.GateOptions{QueueLimit: 1, MaxHosts: 1})
		gate.Pause("a", time.Second)
		began := time.Now()
		done := make(chan time.Duration)
		go func() {
			lease, err := gate.Acquire(t.Context(), "a", 1)
			assert.NoError(t, err)
			assert.True(t, lease.Acquired())
			done <- time.Since(began)
		}()
		synctest.Wait()
		gate.Pause("b", time.Hour)
		_, paused := gate.Paused("b")
		assert.False(t, paused, "there is no room: a request waits for the other host")
		gate.Pause("a", time.Minute)
		assert.Equal(t, time.Minute, <-done)
		gate.Pause("b", time.Hour)
		_, paused = gate.Paused("b")
		assert.True(t, paused)
	})
}

// panickingContext panics in Done, which a wait calls.
type panickingContext struct{ context.Context }

func (panickingContext) Done() <-chan struct{} { panic("Done") }

func TestGate_ContextThatPanicsTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGate(t, nil, &weirhttp.GateOptions{QueueLimit: 1})
		gate.Pause("a", time.Second)
		assert.Panics(t, func() { _, _ = gate.Acquire(panickingContext{t.Context()}, "a", 1) })
		lease, err := gate.Acquire(t.Context(), "a", 1)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
	})
}

func TestGate_TransportPausesForMaxRetryAfterAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &fakeBase{answer: func(*http.Request, int) (*http.Response, error) {
			return answering(503, "Retry-After", "99999999999999999999"), nil
		}}
		gate := newGate(t, nil, nil)
		transport := roundTripper(t, base, &weirhttp.TransportOptions{PauseOnRetryAfter: gate, MaxRetryAfter: 5 * time.Second})
		resp, err := transport.RoundTrip(newRequest(t, http.MethodGet, url, ""))
		require.NoError(t, err)
		readAll(t, resp)
		left, _ := gate.Paused("api.example.com")
		assert.Equal(t, 5*time.Second, left)
	})
}

// funcLimiter is a keyed limiter made of a function.
type funcLimiter func(ctx context.Context) (limiter.Lease, error)

func (f funcLimiter) Acquire(ctx context.Context, _ string, _ int) (limiter.Lease, error) {
	return f(ctx)
}

func (f funcLimiter) TryAcquire(ctx context.Context, _ string, _ int) (limiter.Lease, error) {
	return f(ctx)
}

// Whatever the limiter behind the gate does, a request that has waited for the end of a pause has left the queue.
func TestGate_LimiterThatMisbehaves(t *testing.T) {
	for how, misbehave := range misbehaviors {
		for _, wait := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/wait=%v", how, wait), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var gate *weirhttp.Gate
					calm := false
					gate = newGate(t, funcLimiter(func(ctx context.Context) (limiter.Lease, error) {
						if calm {
							return custom.Granted(1, nil), nil
						}
						misbehave(ctx, func() {
							calm = true
							gate.Pause("a", time.Second)
							lease, err := gate.Acquire(ctx, "a", 1)
							assert.NoError(t, err)
							assert.True(t, lease.Acquired())
						})
						return limiter.Lease{}, ctx.Err()
					}), &weirhttp.GateOptions{QueueLimit: 1, MaxHosts: 1})
					if wait {
						gate.Pause("a", time.Second)
					}
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() { _ = recover() }()
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						_, _ = gate.Acquire(ctx, "a", 1)
					}()
					<-ended
					calm = true
					gate.Pause("a", time.Second)
					lease, err := gate.Acquire(t.Context(), "a", 1)
					require.NoError(t, err)
					assert.True(t, lease.Acquired(), "the place is free")
					gate.Pause("b", time.Second)
					_, paused := gate.Paused("b")
					assert.True(t, paused, "no request waits for the other host")
				})
			})
		}
	}
}
