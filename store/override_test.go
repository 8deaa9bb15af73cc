package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

func for1h(o limiter.Options) store.Override {
	return store.Override{Options: o, Until: time.Now().Add(time.Hour), By: "ann", Reason: "a sale"}
}

func hourly(n int) limiter.TokenBucketOptions { return bucketOf(n, 1, 24*time.Hour, 0) }

// overrides keeps what limiters say to OnOverride.
type overrides struct {
	mu  sync.Mutex
	all []string
}

func (v *overrides) add(at string) func(store.Override) {
	return func(o store.Override) {
		v.mu.Lock()
		defer v.mu.Unlock()
		line := fmt.Sprintf("%s: %d for %d by %s because %s", at, o.Options.Limits().Permits, o.Configured.Limits().Permits, o.By, o.Reason)
		if o.Ended != "" {
			line += ": " + o.Ended
		}
		v.all = append(v.all, line)
	}
}

// take returns what was said since the last time.
func (v *overrides) take() []string {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.all
	v.all = nil
	return all
}

func TestOverride_AllInstancesAndKinds(t *testing.T) {
	t.Run("token bucket", func(t *testing.T) { testOverride(t, (*store.Store).TokenBucket, hourly) })
	t.Run("fixed window", func(t *testing.T) {
		testOverride(t, (*store.Store).FixedWindow, func(n int) limiter.FixedWindowOptions {
			return limiter.FixedWindowOptions{PermitLimit: n, Window: 24 * time.Hour}
		})
	})
	t.Run("sliding window", func(t *testing.T) {
		testOverride(t, (*store.Store).SlidingWindow, func(n int) limiter.SlidingWindowOptions {
			return limiter.SlidingWindowOptions{PermitLimit: n, Window: 24 * time.Hour, SegmentsPerWindow: 24}
		})
	})
	t.Run("concurrency", func(t *testing.T) {
		testOverride(t, (*store.Store).Concurrency, func(n int) limiter.ConcurrencyOptions {
			return limiter.ConcurrencyOptions{PermitLimit: n}
		})
	})
}

func testOverride[O limiter.Options](t *testing.T, newLimiter func(*store.Store, string, O, *store.LimiterOptions) (*store.Limiter, error), options func(int) O) {
	for _, listening := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			o := store.Options{NoListen: !listening, RefreshInterval: 48 * time.Hour}
			instance := func(n int) *store.Limiter {
				return must(newLimiter(w.instance(o), "l", options(n), nil))(t)
			}
			available := func(l *store.Limiter) int64 { return l.Statistics().AvailablePermits }
			a, b := instance(10), instance(10)
			w.granted(a, 2)
			w.granted(b, 2)
			start := time.Now()
			v := for1h(options(7))
			require.NoError(t, a.Override(v))
			assert.EqualValues(t, 3, available(a), "what was taken stays taken")
			assert.EqualValues(t, 3, available(b))
			assert.Equal(t, options(7).Limits(), a.Limits())
			assert.Equal(t, options(7).Limits(), b.Limits())
			v.Since, v.Configured, v.Until = time.UnixMicro(start.UnixMicro()), options(10), time.UnixMicro(v.Until.UnixMicro())
			for _, l := range []*store.Limiter{a, b} {
				got, ok := l.Overridden()
				assert.True(t, ok)
				assert.Equal(t, v, got)
			}

			// An instance that starts later takes the override, also if it has other limits.
			c := instance(12)
			w.granted(c, 1)
			assert.Equal(t, options(7).Limits(), c.Limits())
			got, _ := b.Overridden()
			if listening {
				assert.Equal(t, options(12), got.Configured)
			}

			require.NoError(t, a.Close()) // the instance that has made it does not run any more
			time.Sleep(time.Until(v.Until) - time.Microsecond)
			synctest.Wait()
			assert.Equal(t, options(7).Limits(), c.Limits(), "not yet")
			time.Sleep(time.Microsecond)
			synctest.Wait()
			const taken = 5 // a closed limiter keeps its leases
			for _, l := range []*store.Limiter{b, c} {
				assert.EqualValues(t, 12-taken, available(l), "no fresh burst")
				assert.Equal(t, options(12).Limits(), l.Limits())
				_, ok := l.Overridden()
				assert.False(t, ok)
			}
		})
	}
}

// All instances report the start and the end, each once.
func TestOverride_IsReported(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var said overrides
		a, b, unused := w.bucket(10, 1, time.Hour, 0, nil), w.bucket(10, 1, time.Hour, 0, nil), w.bucket(10, 1, time.Hour, 0, nil)
		a.OnOverride(said.add("a"))
		b.OnOverride(said.add("b"))
		unused.OnOverride(said.add("unused"))
		w.granted(b, 1)
		require.NoError(t, a.Override(for1h(hourly(5))), "also as the first use")
		assert.ElementsMatch(t, []string{"a: 5 for 10 by ann because a sale", "b: 5 for 10 by ann because a sale"}, said.take())
		require.NoError(t, b.Reconfigure(hourly(20)))
		assert.Empty(t, said.take(), "it is the same override")

		second := for1h(hourly(6))
		second.By = "bob"
		require.NoError(t, b.Override(second))
		assert.ElementsMatch(t, []string{
			"a: 5 for 20 by ann because a sale: replaced by bob",
			"a: 6 for 20 by bob because a sale",
			"b: 5 for 20 by ann because a sale: replaced by bob",
			"b: 6 for 20 by bob because a sale",
		}, said.take())
		require.NoError(t, a.EndOverride("eve"))
		assert.ElementsMatch(t, []string{
			"a: 6 for 20 by bob because a sale: ended by eve",
			"b: 6 for 20 by bob because a sale: ended at another instance",
		}, said.take())
		assert.Equal(t, 20, b.Limits().Permits)

		require.NoError(t, a.Override(for1h(hourly(5))))
		said.take()
		w.granted(unused, 1)
		assert.Equal(t, []string{"unused: 5 for 20 by ann because a sale"}, said.take(), "it learns of it now")
		w.pass(time.Hour)
		assert.ElementsMatch(t, []string{
			"a: 5 for 20 by ann because a sale: its time is over",
			"b: 5 for 20 by ann because a sale: its time is over",
			"unused: 5 for 20 by ann because a sale: its time is over",
		}, said.take())
		a.OnOverride(nil)
		require.NoError(t, a.Override(for1h(hourly(5))))
		assert.Len(t, said.take(), 2)
	})
}

// OnOverride can be called while the function of the call before still runs, and events wait for it.
func TestOverride_AnotherFunctionWhileOneRuns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := must(w.instance(store.Options{}).TokenBucket("l", hourly(10), nil))(t)
		w.granted(a, 1)
		release := make(chan struct{})
		calls := 0
		a.OnOverride(func(store.Override) { calls++; <-release })
		require.NoError(t, a.Override(for1h(hourly(7))))
		require.NoError(t, a.EndOverride("bob"))
		synctest.Wait()
		a.OnOverride(nil)
		close(release)
		synctest.Wait()
		assert.Equal(t, 1, calls, "the end waits, and is not reported after OnOverride(nil)")
	})
}

// What is set meanwhile comes into force at the end, the queue, too.
func TestOverride_Configured(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.program(10, 0)
		use(t, a)
		require.NoError(t, a.Override(for1h(bucketOf(99, 1, time.Hour, 3))))
		for i, reconfigure := range []func(limiter.Options) error{a.Reconfigure, a.ReconfigureLater} {
			to := bucketOf(20+i, 1, time.Hour, 5)
			require.NoError(t, reconfigure(to))
			w.inForce(99)
			assert.Equal(t, bucketOf(99, 1, time.Hour, 3).Limits(), a.Limits())
			o, _ := a.Overridden()
			assert.Equal(t, to, o.Configured)
		}
		w.pass(time.Hour)
		w.inForce(21)
		assert.Equal(t, bucketOf(21, 1, time.Hour, 5).Limits(), a.Limits())
	})
}

// If no instance runs at the end, the first use ends the override, before it decides.
func TestOverride_NoInstanceRunsAtTheEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		a := must(s.TokenBucket("bucket", hourly(10), nil))(t)
		w.granted(a, 1)
		require.NoError(t, a.Override(for1h(hourly(99))))
		require.NoError(t, s.Close())
		w.pass(2 * time.Hour)
		w.inForce(99) // only in the store
		b := w.bucket(10, 1, 24*time.Hour, 0, nil)
		_, err := b.TryAcquire(t.Context(), 11)
		require.ErrorIs(t, err, limiter.ErrPermitCount)
		w.rejected(b, 10)
		w.granted(b, 9)
		w.inForce(10)
	})
}

// The store is away at the end: the local limiters go back at once, and the store when it is back.
func TestOverride_StoreAwayAtTheEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.bucket(10, 1, 24*time.Hour, 0, &store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 1})
		w.granted(a, 1)
		require.NoError(t, a.Override(for1h(hourly(99))))
		w.pass(59 * time.Minute)
		w.Memory.Fail(errors.New("away"))
		w.granted(a, 50)
		w.pass(2 * time.Minute)
		w.rejected(a, 1)
		w.inForceDespite(99)
		w.Memory.Fail(nil)
		w.pass(5 * time.Second)
		w.inForce(10)
	})
}

// inForceDespite is inForce while calls fail.
func (w *world) inForceDespite(limit int) {
	w.Helper()
	w.Memory.Fail(nil)
	w.inForce(limit)
	w.Memory.Fail(errors.New("away"))
}

// A store that has lost the definition gets it back with the override.
func TestOverride_StoreForgets(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		old, a := w.program(7, 0), w.program(10, 0)
		use(t, a)
		require.NoError(t, a.Override(for1h(hourly(99))))
		w.pass(time.Second)
		w.Forget()
		use(t, old) // which the definition would have overruled
		w.pass(time.Second)
		w.granted(a, 1)
		w.pass(time.Minute)
		w.inForce(99)
		o, _ := a.Overridden()
		w.pass(time.Until(o.Until))
		d, _, err := w.Load(w.ctx, "bucket")
		require.NoError(t, err)
		require.NotContains(t, d.Terms, "override")
		require.EqualValues(t, o.Configured.Limits().Permits, d.Permits)
	})
}

// The end is one of the store's clock, also if that steps.
func TestOverride_ClockSteps(t *testing.T) {
	for step, after := range map[time.Duration]time.Duration{
		30 * time.Minute:  30 * time.Minute,
		-30 * time.Minute: 90 * time.Minute,
	} {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.program(10, 0)
			use(t, a)
			start := time.Now()
			require.NoError(t, a.Override(for1h(hourly(99))))
			w.pass(time.Second)
			w.Step(step)
			w.pass(time.Until(start.Add(after)) - 2*time.Second)
			w.inForce(99)
			w.pass(time.Minute + 2*time.Second)
			w.inForce(10)
		})
	}
}

// Limits of another kind end the override: those of a bucket mean nothing to a window.
func TestOverride_AnotherKind(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var said overrides
		slots := must(w.instance(store.Options{}).Concurrency("bucket", limiter.ConcurrencyOptions{PermitLimit: 5}, nil))(t)
		a := w.bucket(10, 1, time.Hour, 0, nil)
		a.OnOverride(said.add("a"))
		require.NoError(t, a.Override(for1h(hourly(99))))
		said.take()
		window := limiter.FixedWindowOptions{PermitLimit: 5, Window: time.Hour}
		time.Sleep(time.Second)
		b := must(w.instance(store.Options{}).FixedWindow("bucket", window, nil))(t)
		require.NoError(t, b.Reconfigure(window))
		w.inForce(5)
		assert.Equal(t, []string{"a: 99 for 10 by ann because a sale: ended at another instance"}, said.take())
		require.ErrorContains(t, a.Override(for1h(hourly(99))), "store: Options must be of the kind that the limiter has in the store, fixed_window")
		require.ErrorIs(t, slots.Override(for1h(limiter.ConcurrencyOptions{PermitLimit: 7})), store.ErrUnavailable)
		w.inForce(5)
	})
}

func TestOverride_Errors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.bucket(10, 1, time.Hour, 0, nil)
		use(t, a)
		for want, v := range map[string]store.Override{
			"store: By must be set; Reason must be set; Until must be set; Options must be set": {},
			`store: Until must be in the future by the store's clock, which shows 2000-01-01T00:00:00Z, got "2000-01-01T00:00:00Z"`: {
				Options: hourly(1), By: "ann", Reason: "why", Until: time.Now(),
			},
			`store: Until must be at most 100 years away, got "2200-01-01T00:00:00Z"`: {
				Options: hourly(1), By: "ann", Reason: "why", Until: time.Now().AddDate(200, 0, 0),
			},
			"store: By must have at most 256 bytes, got 300; Reason must have at most 1024 bytes, got 1100": {
				Options: hourly(1), By: strings.Repeat("x", 300), Reason: strings.Repeat("x", 1100), Until: time.Now().Add(time.Hour),
			},
		} {
			err := a.Override(v)
			require.EqualError(t, err, strings.ReplaceAll(want, "00Z", time.Now().Local().Format("05Z07:00")))
			require.ErrorIs(t, err, weir.ErrInvalidOptions)
		}
		require.EqualError(t, a.EndOverride(""), "store: by must be set")
		require.EqualError(t, a.EndOverride("ann"), `store: the limiter is not overridden: "bucket"`)
		w.Memory.Fail(errors.New("away"))
		require.ErrorIs(t, a.Override(for1h(hourly(5))), store.ErrUnavailable)
		require.ErrorIs(t, a.EndOverride("ann"), store.ErrUnavailable)
		w.Memory.Fail(nil)
		w.inForce(10)
		require.NoError(t, a.Close())
		require.ErrorIs(t, a.Override(for1h(hourly(5))), limiter.ErrClosed)
		require.ErrorIs(t, a.EndOverride("ann"), limiter.ErrClosed)
	})
}

// Instances that override, end and reconfigure at once agree at the end, and every end is reported.
func TestOverride_ConcurrentSafe(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var said overrides
		var all []*store.Limiter
		for i := range 4 {
			l := w.bucket(10, 1, time.Hour, 0, nil)
			l.OnOverride(said.add(fmt.Sprint(i)))
			all = append(all, l)
		}
		w.Delay(time.Millisecond)
		var wg sync.WaitGroup
		each := func(f func(n int, l *store.Limiter) error, allowed ...error) {
			for i, l := range all {
				wg.Go(func() {
					for n := range 20 {
						err := f(i*100+n, l)
						for _, a := range allowed {
							if errors.Is(err, a) {
								err = nil
							}
						}
						assert.NoError(t, err)
						time.Sleep(time.Duration(n) * time.Millisecond)
					}
				})
			}
		}
		each(func(n int, l *store.Limiter) error {
			v := for1h(hourly(1000 + n))
			v.Until = time.Now().Add(time.Duration(n%7+10) * 10 * time.Millisecond)
			return l.Override(v)
		}, store.ErrUnavailable, weir.ErrInvalidOptions) // too often at once; at its turn only after its end
		each(func(_ int, l *store.Limiter) error { return l.EndOverride("bob") }, store.ErrNotOverridden, store.ErrUnavailable)
		each(func(n int, l *store.Limiter) error { return l.Reconfigure(hourly(100 + n)) }, store.ErrUnavailable)
		each(func(_ int, l *store.Limiter) error {
			_, err := l.TryAcquire(t.Context(), 0)
			return err
		})
		wg.Wait()
		w.pass(time.Minute)
		d, _, err := w.Load(w.ctx, "bucket")
		require.NoError(t, err)
		require.NotContains(t, d.Terms, "override")
		assert.Less(t, d.Permits, int64(1000), "configured limits")
		for _, l := range all {
			assert.EqualValues(t, d.Permits, l.Limits().Permits)
			_, ok := l.Overridden()
			assert.False(t, ok)
		}
		began, ended := map[string]int{}, map[string]int{}
		for _, line := range said.take() {
			at, _, _ := strings.Cut(line, ":")
			if strings.Count(line, ":") == 1 {
				began[at]++
			} else {
				ended[at]++
			}
		}
		assert.Equal(t, began, ended)
		assert.Len(t, began, 4)
	})
}
