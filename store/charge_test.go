package store_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/turn"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

var (
	_ limiter.Charger                    = (*store.Limiter)(nil)
	_ limiter.PartitionedCharger[string] = (*store.Partitioned)(nil)
)

// charged charges n permits and expects that so many remain.
func (w *world) charged(l limiter.Charger, n int, remaining int64) limiter.Level {
	w.Helper()
	level, err := l.Charge(w.ctx, n)
	require.NoError(w, err)
	require.Equal(w, remaining, level.Remaining, "after a charge of %d", n)
	synctest.Wait()
	return level
}

// spending are the kinds of limiters that can be charged.
var spending = []limitertest.Kind{limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket, limitertest.Calendar}

// eachCharger runs f for every kind of limiter that can be charged, whose limit is 10, and every way in which it answers.
func eachCharger(t *testing.T, f func(t *testing.T, w *world, l made, name string)) {
	for _, k := range spending {
		for name, how := range peekOptions {
			t.Run(fmt.Sprint(k, " ", name), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					f(t, w, build(t, w.instance(store.Options{}), k, limitsOfTen, how), name)
				})
			})
		}
	}
}

// Every charge returns the level right after it, and another instance sees the same.
func TestCharge_Level(t *testing.T) {
	for _, k := range spending {
		for _, keyed := range []bool{false, true} {
			t.Run(fmt.Sprint(k, " ", keyed), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					make := build
					if keyed {
						make = buildKeyed
					}
					l := make(t, w.instance(store.Options{}), k, limitsOfTen, nil)
					elsewhere := make(t, w.instance(store.Options{}), k, limitsOfTen, nil)
					full := func(missing int) time.Duration {
						return map[limitertest.Kind]time.Duration{
							limitertest.TokenBucket: time.Duration(missing) * time.Hour,
							limitertest.FixedWindow: time.Hour, limitertest.SlidingWindow: time.Hour, limitertest.Calendar: 24 * time.Hour,
						}[k]
					}
					require.Equal(t, limiter.Level{Remaining: 10}, w.charged(l, 0, 10))
					require.Equal(t, full(3), w.charged(l, 3, 7).Full)
					require.Equal(t, full(3), w.charged(elsewhere, 0, 7).Full)
					require.Equal(t, full(12), w.charged(l, 9, -2).Full, "it owes two")
					require.Equal(t, full(12), w.charged(elsewhere, 0, -2).Full)
					statistics := l.Statistics()
					w.rejected(l, 1)
					w.rejected(elsewhere, 0)
					require.Equal(t, full(7), w.charged(elsewhere, -5, 3).Full)
					w.granted(l, 3)
					w.rejected(l, 1)
					require.Equal(t, limiter.Level{Remaining: 10}, w.charged(l, -100, 10), "no more than was missing")
					w.granted(elsewhere, 10)
					require.EqualValues(t, 0, statistics.SuccessfulLeases)
					require.EqualValues(t, 0, statistics.FailedLeases)
				})
			})
		}
	}
}

// A debt is paid by time, as the level says.
func TestCharge_DebtEnds(t *testing.T) {
	eachCharger(t, func(t *testing.T, w *world, l made, _ string) {
		level := w.charged(l, 15, -5)
		lease := w.rejected(l, 1)
		after, ok := lease.RetryAfter()
		require.True(t, ok)
		w.pass(after - time.Second)
		w.rejected(l, 1)
		w.pass(time.Second)
		w.granted(l, 1)
		w.pass(level.Full - after + 24*time.Hour) // of one permit, whatever the window
		require.EqualValues(t, 10, w.charged(l, 0, 10).Remaining)
	})
}

// The permits that were taken first are given back. The others stay missing until a window has passed since.
func TestCharge_SlidingWindowGivesBackTheOldest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := build(t, w.instance(store.Options{}), limitertest.SlidingWindow, limitsOfTen, nil)
		for _, left := range []int64{8, 6, 4} {
			w.charged(l, 2, left)
			w.pass(12 * time.Minute)
		}
		calls := w.Calls("Decide")
		level := w.charged(l, -3, 7)
		require.Equal(t, 1, w.Calls("Decide")-calls)
		require.Equal(t, 48*time.Minute, level.Full, "until the third pair is back")
		w.pass(36 * time.Minute)
		w.charged(l, 0, 8)
		w.pass(12 * time.Minute)
		w.charged(l, 0, 10)
	})
}

// In debt, the permits that were taken last are given back first, and then what was taken first.
func TestCharge_SlidingWindowInDebt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := build(t, w.instance(store.Options{}), limitertest.SlidingWindow, limitsOfTen, nil)
		for _, left := range []int64{4, -2} {
			w.charged(l, 6, left)
			w.pass(12 * time.Minute)
		}
		level := w.charged(l, -2, 0)
		require.Equal(t, 48*time.Minute, level.Full)
		w.charged(l, 1, -1)
		w.charged(l, -3, 2) // that of the third segment, and 2 of the first
		w.pass(36 * time.Minute)
		w.charged(l, 0, 6)
		w.pass(12 * time.Minute)
		w.charged(l, 0, 10)
	})
}

// Permits that were given back are there at once: a remembered rejection does not hide them.
func TestCharge_EndsRememberedRejection(t *testing.T) {
	eachCharger(t, func(t *testing.T, w *world, l made, _ string) {
		w.charged(l, 10, 0)
		w.rejected(l, 1)
		w.rejected(l, 4)
		w.charged(l, -3, 3)
		w.rejected(l, 4)
		w.granted(l, 3)
		w.rejected(l, 1)
		elsewhere := build(t, w.instance(store.Options{}), kindOf(l), limitsOfTen, nil)
		w.charged(elsewhere, -5, 5)
		w.charged(l, 0, 5)
		w.granted(l, 5)
	})
}

// A caller that is rejected before permits are given back, and goes on only after that, remembers no rejection.
func TestCharge_LateRejection(t *testing.T) {
	eachCharger(t, func(t *testing.T, w *world, l made, _ string) {
		w.charged(l, 10, 0)
		turn.Runs.Add(1)
		defer turn.Runs.Add(-1)
		goOn := make(lateTurn)
		rejected := make(chan limiter.Lease)
		go func() {
			lease, err := l.TryAcquire(context.WithValue(w.ctx, turn.Key{}, goOn), 1)
			assert.NoError(t, err)
			rejected <- lease
		}()
		w.pass(time.Millisecond)
		w.charged(l, -4, 4)
		close(goOn)
		require.False(t, (<-rejected).Acquired())
		w.granted(l, 4)
	})
}

// A lateTurn comes when the channel is closed.
type lateTurn chan struct{}

func (l lateTurn) Take() { <-l }

func kindOf(l made) limitertest.Kind {
	switch l.shared.(limiter.Configurable).Limits().Kind {
	case rate.FixedWindow:
		return limitertest.FixedWindow
	case rate.SlidingWindow:
		return limitertest.SlidingWindow
	default:
		return limitertest.TokenBucket
	}
}

// A charge that finds fewer permits makes no remembered rejection end later than it was to end.
func TestCharge_DoesNotProlongRememberedRejection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 0, &store.LimiterOptions{CacheRejections: true})
		w.charged(l, 10, 0)
		w.rejected(l, 1)
		w.charged(l, 1, -1)
		calls := w.Calls("Decide")
		lease := w.rejected(l, 1)
		require.Equal(t, calls, w.Calls("Decide"))
		after, _ := lease.RetryAfter()
		require.Equal(t, 2*time.Hour, after, "by the last answer")
	})
}

func TestCharge_ServesTheQueue(t *testing.T) {
	for _, k := range spending {
		for name, how := range peekOptions {
			t.Run(fmt.Sprint(k, " ", name), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					limits := limitsOfTen
					limits.QueueLimit = 10
					l := build(t, w.instance(store.Options{}), k, limits, how)
					w.charged(l, 12, -2)
					waiter := w.acquire(l, 3)
					w.waits(waiter)
					w.charged(l, -4, 2)
					w.waits(waiter)
					w.charged(l, -1, 3)
					w.pass(0)
					w.served(waiter)
					require.Zero(t, waiter.took)
					w.charged(l, 0, 0)
				})
			})
		}
	}
}

// Calls that share a round trip have a level each: that right after its own charge, not that after all.
func TestCharge_SharedRoundTrip(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 0, nil)
		w.charged(l, 0, 10)
		calls := w.Calls("Decide")
		w.hook(func(string) error { time.Sleep(time.Millisecond); return nil }, nil)
		levels := make(chan limiter.Level, 12)
		for range 12 {
			go func() {
				level, err := l.Charge(w.ctx, 1)
				assert.NoError(t, err)
				levels <- level
			}()
			synctest.Wait() // the first call is under way when the others come
		}
		w.pass(2 * time.Millisecond)
		require.Equal(t, 2, w.Calls("Decide")-calls)
		seen := map[int64]time.Duration{}
		for range 12 {
			level := <-levels
			seen[level.Remaining] = level.Full
		}
		for left := int64(-2); left < 10; left++ {
			require.InDelta(t, time.Duration(10-left)*time.Hour, seen[left], float64(time.Minute), "%d are left", left)
		}
	})
}

// What this instance has borrowed can still be granted here, so it remains; what another one has borrowed does not.
func TestCharge_BorrowedPermits(t *testing.T) {
	for _, k := range spending {
		t.Run(k.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				limits := limitertest.Limits{Permits: 100, Period: time.Hour, TokensPerPeriod: 1, Segments: 10}
				l := build(t, w.instance(store.Options{}), k, limits, &store.LimiterOptions{Block: 20})
				for n := range 3 { // the blocks grow: 1, 2, 4
					w.granted(l, 1)
					w.charged(l, 0, int64(99-n))
				}
				w.granted(l, 1)
				elsewhere := build(t, w.instance(store.Options{}), k, limits, nil)
				there, err := elsewhere.Charge(w.ctx, 0)
				require.NoError(t, err)
				require.Less(t, there.Remaining, int64(96), "without what is left of the last block, 2 or 3")
				w.charged(l, 0, 96)
				w.charged(l, 10, 86)
				w.granted(l, 3)
				w.charged(l, 0, 83)
				w.pass(2 * time.Second) // the rest of a block goes back
				w.charged(elsewhere, 0, 83)
			})
		})
	}
}

func TestCharge_Unsupported(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		seats := w.concurrency(5, 0, store.Options{}, nil)
		_, err := seats.Charge(w.ctx, 1)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		keyed := must(w.instance(store.Options{}).PartitionedConcurrency("keyed", limiter.ConcurrencyOptions{PermitLimit: 1}, nil))(t)
		_, err = keyed.Charge(w.ctx, "key", 0)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.Zero(t, w.Calls())
	})
}

func TestCharge_Errors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{CallTimeout: 300 * time.Millisecond})
		l := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
		ended, cancel := context.WithCancelCause(w.ctx)
		cancel(errDead)
		_, err := l.Charge(ended, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errDead, "the cause")
		w.charged(l, 1, 9)

		w.Stall(true)
		soon, stop := context.WithTimeout(w.ctx, 20*time.Millisecond)
		defer stop()
		require.Equal(t, 20*time.Millisecond, timed(func() {
			_, err := l.Charge(soon, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var u interface{ Undecided() bool }
			require.ErrorAs(t, err, &u)
			require.True(t, u.Undecided())
		}))
		require.Equal(t, 300*time.Millisecond, timed(func() {
			_, err := l.Charge(w.ctx, 1)
			require.ErrorIs(t, err, store.ErrUnavailable)
		}))
		closed := make(chan error)
		go func() { closed <- l.Close() }() // it asks for the final statistics
		w.pass(100 * time.Millisecond)
		_, err = l.Charge(w.ctx, 1)
		require.ErrorIs(t, err, limiter.ErrClosed, "it was closed meanwhile")
		require.NoError(t, <-closed)
		_, err = l.Charge(w.ctx, 0)
		require.ErrorIs(t, err, limiter.ErrClosed)
		w.Stall(false)
		w.pass(time.Second)
	})
}

func TestCharge_Bounds(t *testing.T) {
	eachCharger(t, func(t *testing.T, w *world, l made, _ string) {
		const most = rate.MaxDebt
		once := min(int64(math.MaxInt), most) // an int may have 32 bits
		twice := min(2*once, most)
		require.Positive(t, w.charged(l, math.MaxInt, 10-once).Full)
		w.charged(l, math.MaxInt, 10-twice)
		w.charged(l, -math.MaxInt, 10-twice+once)
		w.charged(l, math.MinInt, 10)
	})
}

// What was sent counts, also if its caller has left meanwhile.
func TestCharge_CallerLeaves(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10, 1, time.Hour, 0, nil)
		w.charged(l, 0, 10)
		w.hook(func(string) error { time.Sleep(10 * time.Millisecond); return nil }, nil)
		soon, stop := context.WithTimeout(w.ctx, time.Millisecond)
		defer stop()
		_, err := l.Charge(soon, 3)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		w.charged(l, 0, 7)
	})
}

// Keys are independent, also long ones, and looking makes no key.
func TestCharge_Keys(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, how := range peekOptions {
			keyed := must(w.instance(store.Options{}).PartitionedTokenBucket("keyed", bucketOf(5, 1, time.Hour, 0), how))(t)
			for i := range 20 {
				for _, n := range []int{0, -1} {
					level, err := keyed.Charge(w.ctx, fmt.Sprint(i), n)
					require.NoError(t, err)
					require.Equal(t, limiter.Level{Remaining: 5}, level)
				}
			}
			require.Zero(t, store.KeyStates(keyed))
			require.Zero(t, w.Keys())
		}
		keyed := must(w.instance(store.Options{}).PartitionedTokenBucket("keyed", bucketOf(5, 1, time.Hour, 0), nil))(t)
		for _, key := range []string{"", "a", "\xff", fmt.Sprintf("%1000d", 1)} {
			level, err := keyed.Charge(w.ctx, key, 7)
			require.NoError(t, err)
			require.EqualValues(t, -2, level.Remaining)
			require.False(t, must(keyed.TryAcquire(w.ctx, key, 1))(t).Acquired())
		}
	})
}

// New limits that other instances set meanwhile hold for a charge as for TryAcquire.
func TestCharge_Reconfigured(t *testing.T) {
	for _, listens := range []bool{true, false} {
		for _, k := range spending {
			t.Run(fmt.Sprint(k, listens), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					l := build(t, w.instance(store.Options{NoListen: !listens}), k, limitsOfTen, nil)
					elsewhere := build(t, w.instance(store.Options{}), k, limitsOfTen, nil)
					w.charged(l, 4, 6)
					limits := limitsOfTen
					limits.Permits = 3
					require.NoError(t, elsewhere.reconfigure(limits))
					w.charged(l, 1, -2)
					limits.Permits, limits.Segments, limits.Period = 20, 5, 2*time.Hour
					require.NoError(t, elsewhere.reconfigure(limits))
					w.charged(l, -2, 17)
					w.charged(l, -2, 19)
				})
			})
		}
	}
}

// An override of another instance is in force for a charge, and so is its end.
func TestCharge_Overridden(t *testing.T) {
	for _, listens := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			l := must(w.instance(store.Options{NoListen: !listens}).TokenBucket("it", hourly(10), nil))(t)
			elsewhere := must(w.instance(store.Options{}).TokenBucket("it", hourly(10), nil))(t)
			w.charged(l, 4, 6)
			require.NoError(t, elsewhere.Override(for1h(hourly(50))))
			w.charged(l, 30, 16)
			w.pass(time.Hour + time.Second)
			w.charged(l, 0, -24)
			w.charged(l, -30, 6)
		})
	}
}

// Only charges of the keys of a shard that is away are lost.
func TestCharge_ShardIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.divided()
		p := w.keys(w.instance(store.Options{}), 10, nil)
		charge := func(key string) error {
			_, err := p.Charge(w.ctx, key, 1)
			return err
		}
		require.NoError(t, charge("b/1"))
		w.FailShard("b", errDead)
		for range 5 {
			require.ErrorIs(t, charge("b/1"), store.ErrUnavailable)
			require.NoError(t, charge("c/1"))
		}
		w.FailShard("b", nil)
		w.pass(2 * time.Second)
		level, err := p.Charge(w.ctx, "b/1", 1)
		require.NoError(t, err)
		require.EqualValues(t, 8, level.Remaining)
	})
}

// A backend that panics or ends the goroutine loses the charge, and says so.
func TestCharge_BackendPanics(t *testing.T) {
	for _, rude := range []func(){func() { panic("out of order") }, runtime.Goexit} {
		inWorld(t, func(t *testing.T, w *world) {
			l := w.bucket(10, 1, time.Hour, 0, nil)
			w.charged(l, 1, 9)
			w.hook(func(string) error { rude(); return nil }, nil)
			_, err := l.Charge(w.ctx, 1)
			require.ErrorIs(t, err, store.ErrUnavailable)
			w.hook(nil, nil)
			w.charged(l, 1, 8)
		})
	}
}

// A charge is one decision, by the store or the limiter in the process; looking is none.
func TestCharge_Counters(t *testing.T) {
	for name, how := range peekOptions {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s := w.instance(store.Options{FailureThreshold: 1000})
				var o store.LimiterOptions
				if how != nil {
					o = *how
				}
				o.Outage, o.LocalShare = store.FallBackLocally, 0.5
				l := must(s.SlidingWindow("window", limitsOfTen.SlidingWindow(), &o))(t)
				count := gained(s)
				w.charged(l, 3, 7)
				require.Equal(t, store.Counters{Decisions: 1}, count())
				w.charged(l, -2, 9)
				require.Equal(t, store.Counters{Decisions: 1}, count())
				w.charged(l, 0, 9)
				require.Zero(t, count())
				w.hooked.Fail(errDead)
				w.charged(l, 2, 3)
				require.Equal(t, store.Counters{Outages: 1}, count())
				w.charged(l, 0, 3)
				require.Zero(t, count())
			})
		})
	}
}

// Without the store, a charge says that it is lost, at once, or counts in the limiter of the process.
func TestCharge_WithoutTheStore(t *testing.T) {
	for _, k := range spending {
		for _, how := range policies {
			t.Run(fmt.Sprintf("%v %v", k, how.Outage), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					s := w.instance(store.Options{})
					l := build(t, s, k, limitsOfTen, &how)
					w.charged(l, 4, 6)
					w.hooked.Fail(errDead)
					if how.Outage != store.FallBackLocally {
						lost(t, w, s, l)
					} else {
						w.charged(l, 0, 5)
						w.charged(l, 2, 3)
						w.granted(l, 3)
						w.rejected(l, 1)
						w.charged(l, 1, -1)
						w.charged(l, -3, 2)
						require.ErrorIs(t, s.Health().Err, errDead)
						w.granted(l, 2)
					}
					w.hooked.Fail(nil)
					w.pass(1200 * time.Millisecond)
					w.charged(l, 0, 6)
				})
			})
		}
	}
}

func lost(t *testing.T, w *world, s *store.Store, l limiter.Charger) {
	t.Helper()
	for range 10 {
		for _, n := range []int{-1, 0, 1} {
			_, err := l.Charge(w.ctx, n)
			require.ErrorIs(t, err, store.ErrUnavailable)
			require.ErrorIs(t, err, errDead)
		}
	}
	require.ErrorIs(t, s.Health().Err, errDead)
	calls := w.Calls()
	require.Zero(t, timed(func() {
		_, err := l.Charge(w.ctx, 1)
		require.ErrorIs(t, err, store.ErrUnavailable)
	}))
	require.Equal(t, calls, w.Calls(), "a store that is away is not asked")
	require.Zero(t, s.Counters().Outages)
}

// A grant by the store knows the level right after it without another call.
func TestLease_Level(t *testing.T) {
	eachCharger(t, func(t *testing.T, w *world, l made, name string) {
		w.charged(l, 2, 8)
		lease := w.granted(l, 3)
		calls := w.Calls()
		level, ok := lease.Level()
		require.True(t, ok)
		remaining, ok := lease.Remaining()
		require.True(t, ok)
		require.Equal(t, calls, w.Calls())
		require.EqualValues(t, 5, level.Remaining)
		require.EqualValues(t, 5, remaining)
		require.Equal(t, w.charged(l, 0, 5), level)
		w.charged(l, 7, -2)
		if name != "blocks" { // whose level is that of the last answer
			again, ok := lease.Level()
			require.True(t, ok)
			require.Equal(t, level, again)
		}
		_, ok = w.rejected(l, 1).Level()
		require.False(t, ok)
	})
}

func TestLease_LevelAllocatesNothing(t *testing.T) {
	for name, how := range peekOptions {
		l := must(newStore(t, storetest.NewMemory(), store.Options{}).TokenBucket("it", bucketOf(1<<30, 1, time.Hour, 0), how))(t)
		lease := must(l.TryAcquire(t.Context(), 1))(t)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, ok := lease.Level(); !ok {
				t.Error("no level")
			}
		}), name)
	}
}

// A charge costs no more than a request that is granted, which also makes a lease.
func TestCharge_Allocations(t *testing.T) {
	l := must(newStore(t, storetest.NewMemory(), store.Options{}).TokenBucket("it", bucketOf(1<<30, 1, time.Hour, 0), nil))(t)
	ctx := t.Context()
	granted := testing.AllocsPerRun(500, func() { _, _ = l.TryAcquire(ctx, 1) })
	charged := testing.AllocsPerRun(500, func() { _, _ = l.Charge(ctx, 1) })
	require.LessOrEqual(t, charged, granted)
}
