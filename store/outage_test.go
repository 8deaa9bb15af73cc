package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
)

var limitsOfTen = limitertest.Limits{Permits: 10, Period: time.Hour, TokensPerPeriod: 1, Segments: 10}

var errDead = errors.New("connection refused")

var policies = []store.LimiterOptions{
	{Outage: store.FailClosed}, {Outage: store.FailOpen}, {Outage: store.FallBackLocally, LocalShare: 0.5},
}

// answersWithout expects that the limiter, whose limit is 10, answers by its outage policy.
func (w *world) answersWithout(l limiter.Limiter, how store.LimiterOptions) {
	w.Helper()
	var leases []limiter.Lease
	got := 0
	for range 10 {
		lease := w.try(l, 1)
		_, ok := store.OutageKey.From(lease)
		require.True(w, ok, "the answer says why")
		got += lease.Permits()
		leases = append(leases, lease)
	}
	require.Equal(w, map[store.OutagePolicy]int{store.FailClosed: 0, store.FailOpen: 10, store.FallBackLocally: 5}[how.Outage], got)
	for _, lease := range leases {
		if how.Outage == store.FailClosed {
			require.Equal(w, limiter.ReasonUnavailable, lease.Reason())
			_, ok := lease.RetryAfter()
			require.True(w, ok)
		}
		lease.Release()
	}
}

// eachPolicy runs f for every kind of limiter and every policy.
func eachPolicy(t *testing.T, f func(t *testing.T, w *world, s *store.Store, l limiter.Limiter, how store.LimiterOptions)) {
	for _, k := range kinds {
		for _, how := range policies {
			t.Run(fmt.Sprintf("%v %v", k, how.Outage), subtest(func(t *testing.T, w *world) {
				s := w.instance(store.Options{})
				l := build(t, s, k, limitsOfTen, &how)
				f(t, w, s, l, how)
			}))
		}
	}
}

func TestOutage_FailsAndRecovers(t *testing.T) {
	eachPolicy(t, func(t *testing.T, w *world, s *store.Store, l limiter.Limiter, how store.LimiterOptions) {
		w.granted(l, 1).Release()
		w.hooked.Fail(errDead)
		w.answersWithout(l, how)
		synctest.Wait()
		calls := w.Calls()
		took := timed(func() {
			for range 1000 {
				w.try(l, 1).Release()
			}
		})
		require.Zero(t, took)
		require.Equal(t, calls, w.Calls(), "a store that is away is not asked")
		probes := w.Calls("Decide", "Acquire")
		require.ErrorIs(t, s.Health().Err, errDead)
		require.ErrorIs(t, s.Health().Err, store.ErrUnavailable)
		w.pass(10 * time.Second)
		require.InDelta(t, 10, w.Calls("Decide", "Acquire")-probes, 3.5, "one probe a second")
		w.hooked.Fail(nil)
		w.pass(1200 * time.Millisecond)
		require.NoError(t, s.Health().Err)
		lease := w.granted(l, 1)
		_, ok := store.OutageKey.From(lease)
		require.False(t, ok)
		require.Len(t, w.events.of(store.EventStoreLost), 1)
		back := w.events.of(store.EventStoreRecovered)
		require.Len(t, back, 1)
		require.InDelta(t, 11*time.Second, back[0].Away, float64(1300*time.Millisecond))
	})
}

// No caller waits longer than CallTimeout for a store that does not answer, whether its client observes the context or
// not. No goroutine is leaked when the store answers again.
func TestOutage_Stall(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("obeys %v, known before %v", obeys, before), func(t *testing.T) {
				eachPolicy(t, func(t *testing.T, w *world, s *store.Store, l limiter.Limiter, how store.LimiterOptions) {
					if before {
						w.granted(l, 1).Release()
					}
					goOn := make(chan struct{})
					if obeys {
						w.Stall(true)
					} else {
						w.hook(func(string) error { <-goOn; return nil }, nil)
					}
					for range 6 {
						for range 5 {
							go func() {
								time.Sleep(100 * time.Millisecond)
								took := timed(func() { w.try(l, 1).Release() })
								if took > 500*time.Millisecond {
									t.Errorf("it took %v", took)
								}
							}()
						}
						took := timed(func() { w.try(l, 1).Release() })
						require.LessOrEqual(t, took, 500*time.Millisecond)
					}
					w.pass(time.Second)
					require.Error(t, s.Health().Err)
					require.Zero(t, timed(func() { w.try(l, 1).Release() }))
					w.pass(time.Minute)
					w.Stall(false)
					close(goOn)
					w.pass(3 * time.Second)
					require.NoError(t, s.Health().Err)
					require.Len(t, w.events.of(store.EventStoreLost), 1)
					require.Len(t, w.events.of(store.EventStoreRecovered), 1)
					if l.(*store.Limiter).Limits().Kind == rate.Concurrency || !before {
						w.pass(30 * time.Second)
						w.granted(l, 10)
					} else {
						w.pass(time.Second)
						w.granted(l, 9)
					}
				})
			})
		}
	}
}

func TestOutage_ReadOnlyStore(t *testing.T) {
	for _, before := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			l := w.bucket(10, 1, time.Hour, 0, &store.LimiterOptions{Outage: store.FailOpen})
			if before {
				w.granted(l, 1)
			}
			w.hook(failing(errors.New("read only"), "Decide", "Replace", "Acquire", "Renew", "Release", "Define"), nil)
			for range 5 {
				w.granted(l, 1)
			}
			require.Len(t, w.events.of(store.EventStoreLost), 1)
			w.pass(30 * time.Second)
			require.Empty(t, w.events.of(store.EventStoreRecovered))
		})
	}
}

// The outage policy also answers callers that wait when the store is lost.
func TestOutage_Waiters(t *testing.T) {
	for _, how := range policies[:3] {
		t.Run(how.Outage.String(), subtest(func(t *testing.T, w *world) {
			l := w.bucket(10, 1, time.Hour, 20, &how)
			w.granted(l, 10)
			a, b := w.acquire(l, 5), w.acquire(l, 1)
			w.waits(a)
			w.hooked.Fail(errDead)
			for range 3 {
				l.Statistics() // a call finds out
			}
			w.pass(100 * time.Millisecond)
			switch how.Outage {
			case store.FailClosed:
				require.Equal(t, limiter.ReasonUnavailable, a.lease.Reason())
				require.Equal(t, limiter.ReasonUnavailable, b.lease.Reason())
			case store.FailOpen:
				w.served(a)
				w.served(b)
			case store.FallBackLocally:
				w.served(a)
				w.waits(b)
				w.hooked.Fail(nil)
				w.pass(time.Hour)
				w.served(b)
			}
		}))
	}
}

// When the store is back, waiting callers do not all ask at once, and new callers share round trips.
func TestOutage_RecoveryIsSpread(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		p := must(s.PartitionedTokenBucket("keys", bucketOf(1, 1, time.Hour, 5), nil))(t)
		_ = must(p.TryAcquire(w.ctx, "a", 1))(t)
		w.hooked.Fail(errDead)
		for range 3 {
			_ = must(p.TryAcquire(w.ctx, "a", 1))(t)
		}
		require.Error(t, s.Health().Err)
		w.hooked.Fail(nil)
		for s.Health().Err != nil {
			w.pass(10 * time.Millisecond)
		}
		w.Delay(5 * time.Millisecond)
		calls := w.Calls()
		w.together(1000, func(i int) (limiter.Lease, error) { return p.TryAcquire(w.ctx, fmt.Sprint(i), 1) })
		require.LessOrEqual(t, w.Calls()-calls, 12)
	})
}

// A store that hangs counts as away even if all callers have deadlines shorter than CallTimeout. Callers that leave do
// not make a store count as away that answers.
func TestOutage_CallersWithShortDeadlines(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := newStore(t, w.Memory, store.Options{OnEvent: w.events.add})
		l := must(s.TokenBucket("bucket", bucketOf(100, 1, time.Hour, 0), &store.LimiterOptions{Outage: store.FailOpen}))(t)
		w.granted(l, 1)
		try := func(patience time.Duration) bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			lease, err := l.TryAcquire(ctx, 1)
			require.True(t, err == nil || errors.Is(err, context.DeadlineExceeded))
			return lease.Acquired()
		}
		w.Delay(20 * time.Millisecond)
		for range 60 {
			require.False(t, try(15*time.Millisecond))
		}
		w.pass(time.Second)
		require.NoError(t, s.Health().Err)
		require.Empty(t, w.events.of(store.EventStoreLost))
		w.Delay(0)
		w.Stall(true)
		granted := 0
		for range 60 {
			if try(50 * time.Millisecond) {
				granted++
			}
		}
		require.InDelta(t, 28, granted, 4, "three calls in a row have to fail")
		require.Error(t, s.Health().Err)
		w.Stall(false)
		w.pass(3 * time.Second)
		require.NoError(t, s.Health().Err)
	})
}

// A caller that can use an answer only sooner than CallTimeout gets that of the outage policy. The store does not count as
// away if it answers before CallTimeout. What it grants too late is given back, unless the policy has admitted the caller.
func TestOutage_AnswerBy(t *testing.T) {
	for name, how := range map[string]store.LimiterOptions{
		"fail open":   {Outage: store.FailOpen},
		"block":       {Outage: store.FailOpen, Block: 20},
		"fail closed": {},
	} {
		t.Run(name, subtest(func(t *testing.T, w *world) {
			s := newStore(t, w.Memory, store.Options{OnEvent: w.events.add})
			l := must(s.TokenBucket("bucket", bucketOf(10_000, 1, time.Hour, 0), &how))(t)
			try := func(n int) (byPolicy bool, took time.Duration) {
				began := time.Now()
				lease := must(l.TryAcquire(answerby.With(t.Context(), began.Add(15*time.Millisecond)), n))(t)
				_, byPolicy = store.OutageKey.From(lease)
				require.Equal(t, !byPolicy || how.Outage == store.FailOpen, lease.Acquired())
				return byPolicy, time.Since(began)
			}
			byPolicy, took := try(100)
			require.False(t, byPolicy)
			require.Zero(t, took)
			w.Delay(100 * time.Millisecond)
			for range 50 {
				byPolicy, took = try(100)
				if how.Block > 0 && !byPolicy { // a block that has come meanwhile
					require.Less(t, took, 15*time.Millisecond)
					continue
				}
				require.True(t, byPolicy)
				require.Equal(t, 15*time.Millisecond, took)
			}
			began := time.Now()
			lease := must(l.TryAcquire(answerby.With(t.Context(), began.Add(-time.Second)), 0))(t)
			require.Equal(t, how.Outage == store.FailOpen, lease.Acquired())
			require.Equal(t, began, time.Now())

			w.Delay(0)
			w.pass(3 * time.Second)
			require.NoError(t, s.Health().Err)
			require.Empty(t, w.events.of(store.EventStoreLost))
			byPolicy, _ = try(100)
			require.False(t, byPolicy)
			switch {
			case how.Block > 0:
			case how.Outage == store.FailOpen:
				require.EqualValues(t, 10_000-52*100, l.Statistics().AvailablePermits)
			default:
				require.EqualValues(t, 10_000-2*100, l.Statistics().AvailablePermits)
			}
		}))
	}
}

// So it is with what the policy has admitted while a block was fetched.
func TestOutage_AnswerByAndBlock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(10_000, 1, time.Hour, 0, &store.LimiterOptions{Outage: store.FailOpen, Block: 20})
		w.granted(l, 1)
		w.Delay(100 * time.Millisecond)
		for range 50 {
			require.True(t, must(l.TryAcquire(answerby.With(w.ctx, time.Now().Add(15*time.Millisecond)), 1))(t).Acquired())
		}
		w.Delay(0)
		w.pass(3 * time.Second)
		require.LessOrEqual(t, l.Statistics().AvailablePermits, int64(10_000-51))
	})
}

// A caller who waits is rejected if the local limiter has no room for the key, and does not ask it all the time.
func TestOutage_FallBackLocallyWithoutRoom(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(1, 1, time.Hour, 5, &store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 1})
		w.granted(l, 1)
		waiting := w.acquire(l, 1)
		w.waits(waiting)
		store.FillLocally(l)
		w.hooked.Fail(errDead)
		for range 3 {
			l.Statistics() // a call finds out
		}
		w.pass(time.Second)
		require.Equal(t, limiter.ReasonUnavailable, waiting.lease.Reason())
	})
}

// A rejection from before what came too late was given back is not remembered, even if its caller is slow.
func TestOutage_AnswerByAndCacheRejections(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		deterministic.Runs.Add(1)
		defer deterministic.Runs.Add(-1)
		how := &store.LimiterOptions{CacheRejections: true}
		l := must(newStore(t, w.hooked, store.Options{}).FixedWindow("window", limiter.FixedWindowOptions{PermitLimit: 2, Window: time.Hour}, how))(t)
		w.granted(l, 1)
		w.Delay(10 * time.Millisecond)
		var both sync.WaitGroup
		both.Go(func() {
			lease := must(l.TryAcquire(answerby.With(w.ctx, time.Now().Add(5*time.Millisecond)), 1))(t)
			require.Equal(t, limiter.ReasonUnavailable, lease.Reason())
		})
		w.pass(7 * time.Millisecond) // the store has granted the permit, and gets it back 8 ms from now
		both.Go(func() {
			lease := must(l.TryAcquire(context.WithValue(w.ctx, deterministic.TurnKey{}, slowTurn(time.Second)), 1))(t)
			require.False(t, lease.Acquired())
		})
		both.Wait()
		w.granted(l, 1)
	})
}

// A slowTurn makes a caller take so long to look at its answer.
type slowTurn time.Duration

func (s slowTurn) Take() { time.Sleep(time.Duration(s)) }

// So it is with leases.
func TestOutage_AnswerByOfLeases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := newStore(t, w.Memory, store.Options{})
		how := &store.LimiterOptions{Outage: store.FailOpen}
		slots := must(s.Concurrency("slots", limiter.ConcurrencyOptions{PermitLimit: 10}, how))(t)
		w.granted(slots, 1).Release()
		w.pass(time.Second)
		w.Delay(100 * time.Millisecond)
		began := time.Now()
		soon := answerby.With(t.Context(), began.Add(15*time.Millisecond))
		lease := must(slots.TryAcquire(soon, 1))(t)
		require.True(t, lease.Acquired())
		_, byPolicy := store.OutageKey.From(lease)
		require.True(t, byPolicy)
		require.Equal(t, 15*time.Millisecond, time.Since(began))

		w.Delay(0)
		w.pass(time.Second)
		require.NoError(t, s.Health().Err)
		require.EqualValues(t, 10, slots.Statistics().AvailablePermits, "what came too late was released")
	})
}

// New limits during an outage change the local limiter in place: permits that it has granted count.
func TestOutage_FallBackLocallyAfterNewLimits(t *testing.T) {
	limitsOf := func(permits int) limitertest.Limits {
		l := limitsOfTen
		l.Permits = permits
		return l
	}
	for _, k := range kinds {
		t.Run(fmt.Sprint(k), subtest(func(t *testing.T, w *world) {
			how := &store.LimiterOptions{Outage: store.FallBackLocally, LocalShare: 0.5}
			other := build(t, w.instance(store.Options{}), k, limitsOf(10), how)
			w.granted(other, 1)
			down := &hooked{Memory: w.Memory}
			l := build(t, newStore(t, down, store.Options{FailureThreshold: 1 << 20}), k, limitsOf(10), how) // it hears of new limits all the time
			w.granted(l, 1)
			down.hook(failing(errDead, "Decide", "Acquire"), nil)
			granted := func() (n int) {
				for range 20 {
					n += w.try(l, 1).Permits()
				}
				return n
			}
			require.Equal(t, 5, granted())
			for i, more := range []int{1, 0, 0, 3} {
				require.NoError(t, other.Reconfigure(limitsOf([]int{12, 11, 12, 18}[i]).Of(k)))
				w.pass(time.Second)
				require.Equal(t, more, granted(), "change %d", i)
			}
		}))
	}
}

// A pause that makes several round trips fail at once counts as one failure.
func TestBreaker_PauseCountsOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := w.instance(store.Options{})
		p := w.keys(s, 1000, nil)
		w.ask(p, "k")
		w.Stall(true)
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() { w.ask(p, fmt.Sprint(i)) })
		}
		w.pass(600 * time.Millisecond)
		w.Stall(false)
		all.Wait()
		require.NoError(t, s.Health().Err)
		require.True(t, w.ask(p, "k").Acquired())
		require.Empty(t, w.events.of(store.EventStoreLost))
	})
}

// A store that answers too late, and takes fewer requests than come, holds up no memory: what FailOpen has admitted is sent
// within CallTimeout or not at all.
func TestOutage_OverloadedStore(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := newStore(t, pooled{w.hooked, 4}, store.Options{})
		const limit = 1 << 20
		l := must(s.TokenBucket("bucket", bucketOf(limit, 1, time.Hour, 0), &store.LimiterOptions{Outage: store.FailOpen}))(t)
		w.granted(l, 0)
		w.Delay(400 * time.Millisecond)
		var granted atomic.Int64
		var calls sync.WaitGroup
		for range 3000 {
			for range 4 { // 4000 a second; two round trips of 256 each are 1280 a second
				calls.Go(func() {
					lease, _ := l.TryAcquire(answerby.With(w.ctx, time.Now().Add(15*time.Millisecond)), 1)
					granted.Add(int64(lease.Permits()))
				})
			}
			time.Sleep(time.Millisecond)
		}
		calls.Wait()
		require.EqualValues(t, 12_000, granted.Load())
		w.pass(time.Second) // what comes within CallTimeout, and until the next round trip
		w.Delay(0)
		counted := limit - l.Statistics().AvailablePermits
		require.InDelta(t, 1280*3.5, counted, 700, "what the store can take counts")
	})
}

// Without the rights to change definitions, limiters that others have defined are used, and the store is there.
func TestOutage_DefinitionsAreForbidden(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.granted(w.bucket(10, 1, time.Hour, 0, nil), 1)
		s := w.instance(store.Options{FailureThreshold: 3})
		w.hook(failing(errors.New("NOPERM"), "Define"), nil)
		mine := must(s.TokenBucket("mine", bucketOf(10, 1, time.Hour, 0), nil))(t)
		others := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
		for range 9 {
			require.Equal(t, limiter.ReasonUnavailable, w.rejected(mine, 1).Reason())
			w.granted(others, 1)
		}
		require.NoError(t, s.Health().Err)
	})
}

// What FailOpen admits counts also if the definition is not there yet when the caller must be answered.
func TestOutage_FirstRequestsCount(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.Delay(8 * time.Millisecond)
		l := w.bucket(100, 1, time.Hour, 0, &store.LimiterOptions{Outage: store.FailOpen})
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				lease, err := l.TryAcquire(answerby.With(w.ctx, time.Now().Add(15*time.Millisecond)), 1)
				assert.NoError(t, err)
				assert.True(t, lease.Acquired())
			})
		}
		all.Wait()
		w.pass(time.Second)
		require.EqualValues(t, 70, l.Statistics().AvailablePermits)
	})
}
