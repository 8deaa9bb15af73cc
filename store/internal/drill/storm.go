package drill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// stormVariable is for how long a storm of changes goes on, such as 60s, instead of a few seconds.
const stormVariable = "WEIR_STORM"

// Storm tests that no permit disappears while limits change all the time: three instances at a time, which live for about
// a second each, call Reconfigure, Override and EndOverride, while their callers take permits or give up waiting. When
// the storm is over, all that was granted is exactly the last limit. open connects an instance.
func Storm(t *testing.T, open func() (backend.Backend, func(), error), usual time.Duration) {
	if d, err := time.ParseDuration(os.Getenv(stormVariable)); err == nil {
		usual = d
	}
	var kinds sync.WaitGroup
	kinds.Go(func() { storm(t, open, usual, 0, limitertest.TokenBucket) })
	kinds.Go(func() { storm(t, open, usual, 10, limitertest.FixedWindow) })
	kinds.Go(func() { storm(t, open, usual, 0, limitertest.SlidingWindow) })
	kinds.Wait()
}

// A stormLog is what has happened in a storm.
type stormLog struct {
	granted, changes atomic.Int64
	undecided        atomic.Int64 // permits of calls whose answer was lost
	refundsLost      atomic.Int64 // permits that could not be given back
}

func (l *stormLog) event(e store.Event) {
	if e.Kind == store.EventRefundLost {
		l.refundsLost.Add(e.Permits)
	}
}

func storm(t *testing.T, open func() (backend.Backend, func(), error), long time.Duration, block int, k limitertest.Kind) {
	const most, last = 200, 300
	name, end := uniqueName(fmt.Sprintf("storm-%v", k)), time.Now().Add(long)
	options := func(permits int) limiter.Options {
		// A fixed window that ends on the way would grant once more.
		return limitertest.Limits{Permits: permits, Period: 10_000 * time.Hour, TokensPerPeriod: 1, Segments: 4, QueueLimit: 100}.Of(k)
	}
	anyLimits := func() limiter.Options { return options(50 + rand.IntN(most-49)) }
	var log stormLog
	instance := func(limits limiter.Options, how *store.LimiterOptions, use func(l *store.Limiter)) {
		b, disconnect, err := open()
		if err != nil {
			t.Error(err)
			return
		}
		defer disconnect()
		s, err := store.New(b, &store.Options{OnEvent: log.event, CallTimeout: stormTimeout})
		if err != nil {
			t.Error(err)
			return
		}
		if l, err := s.Limiter(name, limits, how); err != nil {
			t.Error(err)
		} else {
			use(l)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	var instances sync.WaitGroup
	for _, how := range []store.LimiterOptions{{CacheRejections: true}, {}, {Block: block}} {
		instances.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				instance(anyLimits(), &how, func(l *store.Limiter) {
					until := time.Now().Add(randomUpTo(2*time.Second) + 300*time.Millisecond)
					var busy sync.WaitGroup
					for range 8 {
						busy.Go(func() { log.call(l, until) })
					}
					for time.Now().Before(until) {
						time.Sleep(randomUpTo(20 * time.Millisecond))
						log.changes.Add(1)
						if err := change(l, anyLimits()); err != nil && !errors.Is(err, store.ErrNotOverridden) && !errors.Is(err, store.ErrUnavailable) {
							t.Error(err)
						}
					}
					busy.Wait()
				})
			}
		})
	}
	instances.Wait()

	during := log.granted.Load()
	instance(options(last), nil, func(l *store.Limiter) {
		if err := l.EndOverride("the test"); err != nil && !errors.Is(err, store.ErrNotOverridden) {
			t.Error(err)
		}
		if err := l.Reconfigure(options(last)); err != nil {
			t.Error(err)
		}
		for range last + 100 {
			log.count(l.TryAcquire(context.Background(), 1))
		}
	})
	granted, undecided := log.granted.Load(), log.undecided.Load()
	if granted > last || granted+undecided < last {
		t.Errorf("%s: %d granted, %d before the storm was over; %d are right, %d of them can be lost with answers", name, granted, during, last, undecided)
	}
	if lost := log.refundsLost.Load(); lost > 0 {
		t.Errorf("%s: %d permits could not be given back", name, lost)
	}
	t.Logf("%s: %d changes, %d granted meanwhile, %d in all, %d undecided", name, log.changes.Load(), during, granted, undecided)
}

// stormTimeout is longer than usual, because an answer that comes too late on a busy machine is a permit lost.
const stormTimeout = 3 * time.Second

// change makes a random change.
func change(l *store.Limiter, to limiter.Options) error {
	switch rand.IntN(3) {
	case 0:
		return l.Reconfigure(to)
	case 1:
		until := time.Now().Add(20*time.Millisecond + randomUpTo(500*time.Millisecond))
		err := l.Override(store.Override{Options: to, Until: until, By: "ann", Reason: "a storm"})
		if time.Now().After(until) { // it came too late
			return nil
		}
		return err
	default:
		return l.EndOverride("ann")
	}
}

// call takes permits. Half of the callers give up early.
func (l *stormLog) call(from limiter.Limiter, until time.Time) {
	for time.Now().Before(until) {
		time.Sleep(randomUpTo(20 * time.Millisecond))
		ctx, cancel := context.WithTimeout(context.Background(), 1+randomUpTo(20*time.Millisecond))
		if rand.IntN(2) == 0 {
			l.count(from.Acquire(ctx, 1))
		} else {
			l.count(from.TryAcquire(context.Background(), 1))
		}
		cancel()
	}
}

func (l *stormLog) count(lease limiter.Lease, err error) {
	switch {
	case err == nil && lease.Acquired():
		l.granted.Add(1)
	case err == nil && lease.Reason() == limiter.ReasonUnavailable:
		l.undecided.Add(1)
	}
}

func randomUpTo(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d))) }
