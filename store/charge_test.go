package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/deterministic"
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
	level := must(l.Charge(w.ctx, n))(w.T)
	require.Equal(w, remaining, level.Remaining, "after a charge of %d", n)
	synctest.Wait()
	return level
}

// spending are the kinds of limiters that can be charged.
var spending = []limitertest.Kind{limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket, limitertest.Calendar}

// eachCharger runs f for every kind of limiter that can be charged, whose limit is 10, and every way in which it answers.
func eachCharger(t *testing.T, f func(t *testing.T, w *world, l *store.Limiter, name string)) {
	for _, k := range spending {
		for name, how := range peekOptions {
			t.Run(fmt.Sprint(k, " ", name), subtest(func(t *testing.T, w *world) {
				f(t, w, build(t, w.instance(store.Options{}), k, limitsOfTen, how), name)
			}))
		}
	}
}

// Permits that were given back are there at once: a remembered rejection does not hide them.
func TestCharge_EndsRememberedRejection(t *testing.T) {
	eachCharger(t, func(t *testing.T, w *world, l *store.Limiter, _ string) {
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
	eachCharger(t, func(t *testing.T, w *world, l *store.Limiter, _ string) {
		w.charged(l, 10, 0)
		w.rejected(l, 1)
		w.pass(4998 * time.Millisecond) // what is remembered of the key is looked through 5 s after that
		w.charged(l, -1, 1)
		deterministic.Runs.Add(1)
		defer deterministic.Runs.Add(-1)
		goOn := make(lateTurn)
		rejected := make(chan limiter.Lease)
		go func() {
			lease, err := l.TryAcquire(context.WithValue(w.ctx, deterministic.TurnKey{}, goOn), 2)
			assert.NoError(t, err)
			rejected <- lease
		}()
		w.pass(time.Millisecond)
		w.charged(l, -3, 4)
		w.pass(2 * time.Millisecond)
		close(goOn)
		require.False(t, (<-rejected).Acquired())
		w.granted(l, 4)
	})
}

// A lateTurn comes when the channel is closed.
type lateTurn chan struct{}

func (l lateTurn) Take() { <-l }

func kindOf(l *store.Limiter) limitertest.Kind {
	switch l.Limits().Kind {
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
		t.Run(k.String(), subtest(func(t *testing.T, w *world) {
			limits := limitertest.Limits{Permits: 100, Period: time.Hour, TokensPerPeriod: 1, Segments: 10}
			l := build(t, w.instance(store.Options{}), k, limits, &store.LimiterOptions{Block: 20})
			for n := range 3 { // the blocks grow: 1, 2, 4
				w.granted(l, 1)
				w.charged(l, 0, int64(99-n))
			}
			w.granted(l, 1)
			elsewhere := build(t, w.instance(store.Options{}), k, limits, nil)
			there := must(elsewhere.Charge(w.ctx, 0))(t)
			require.Less(t, there.Remaining, int64(96), "without what is left of the last block, 2 or 3")
			w.charged(l, 0, 96)
			w.charged(l, 10, 86)
			w.granted(l, 3)
			w.charged(l, 0, 83)
			w.pass(2 * time.Second) // the rest of a block goes back
			w.charged(elsewhere, 0, 83)
		}))
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

// Looking makes no key.
func TestCharge_LookingMakesNoKey(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, how := range peekOptions {
			keyed := must(w.instance(store.Options{}).PartitionedTokenBucket("keyed", bucketOf(5, 1, time.Hour, 0), how))(t)
			for i := range 20 {
				for _, n := range []int{0, -1} {
					level := must(keyed.Charge(w.ctx, fmt.Sprint(i), n))(t)
					require.Equal(t, limiter.Level{Remaining: 5}, level)
				}
			}
			require.Zero(t, store.KeyStates(keyed))
			require.Zero(t, w.Keys())
		}
	})
}

// A charge is one decision, by the store or the limiter in the process; looking is none.
func TestCharge_Counters(t *testing.T) {
	for name, how := range peekOptions {
		t.Run(name, subtest(func(t *testing.T, w *world) {
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
		}))
	}
}

// Without the store, a charge says that it is lost, at once, or counts in the limiter of the process.
func TestCharge_WithoutTheStore(t *testing.T) {
	for _, k := range spending {
		for _, how := range policies {
			t.Run(fmt.Sprintf("%v %v", k, how.Outage), subtest(func(t *testing.T, w *world) {
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
			}))
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
	eachCharger(t, func(t *testing.T, w *world, l *store.Limiter, name string) {
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
