package drill

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/tools/testserver"
)

var outageLimits = limitertest.Limits{Permits: 2000, Period: 1000 * time.Hour, TokensPerPeriod: 1}

// A faultyStore is a store that runs into a fault, with a bucket and a limiter whose only permit is held. What package store answers
// without a store is tested in memory. Here it is what a driver, its connections and a server make of a fault.
type faultyStore struct {
	t      testing.TB
	s      *store.Store
	bucket testLimiter
	seat   testLimiter
	held   limiter.Lease
	taken  int // permits of the bucket
}

func newFaultyStore(t testing.TB, s Subject, place string) *faultyStore {
	f := &faultyStore{t: t, s: s.store(t, place, store.Options{CallTimeout: outageTimeout, ProbeInterval: probeInterval, RefreshInterval: time.Second})}
	f.bucket = must(build(f.s, uniqueName("outage"), limitertest.TokenBucket, outageLimits, nil))(t)
	f.seat = must(build(f.s, uniqueName("seat"), limitertest.Concurrency, onePermit, &store.LimiterOptions{LeaseTTL: 5 * time.Second}))(t)
	eventually(t, "the store answers", f.take)
	eventually(t, "the store lends a permit", func() bool {
		var err error
		f.held, err = decided(f.seat.TryAcquire(t.Context(), 1))
		return err == nil && f.held.Acquired()
	})
	return f
}

// take asks for a permit, and reports whether the store has answered. Without it, the answer is that it is away. It comes soon.
func (f *faultyStore) take() bool {
	begun := time.Now()
	lease, err := f.bucket.TryAcquire(context.Background(), 1)
	if took := time.Since(begun); took > outageTimeout+patience || err != nil {
		f.t.Errorf("after %v: %v", took, err)
	}
	reason, away := store.OutageKey.From(lease)
	if away && (lease.Reason() != limiter.ReasonUnavailable || !errors.Is(reason, store.ErrUnavailable)) {
		f.t.Errorf("without the store: %v, %v", lease, reason)
	}
	if lease.Acquired() {
		f.taken++
	}
	return !away
}

// hasRecovered expects that the store decides again, and has what it had before: only a call that failed can have taken a permit without a
// grant.
func (f *faultyStore) hasRecovered(dataLost bool) {
	eventually(f.t, "the store is there", func() bool { return f.take() && f.s.Health().Err == nil })
	eventually(f.t, "the lease has ended, by its release or its TTL", func() bool {
		_, err := decided(f.seat.TryAcquire(f.t.Context(), 0))
		return err == nil && f.seat.Statistics().AvailablePermits == 1
	})
	if dataLost {
		return
	}
	left := int(f.bucket.Statistics().AvailablePermits)
	if most := outageLimits.Permits - f.taken; left > most || left < most-int(f.s.Counters().Failures) {
		f.t.Errorf("%d permits are left after %d were granted, %+v", left, f.taken, f.s.Counters())
	}
}

// wait lets callers wait for the seat again and again, until ctx ends or the store is closed, and returns when all of them wait. The
// function that it returns waits for their end.
func (f *faultyStore) wait(ctx context.Context, callers int) (ended func()) {
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				lease, err := f.seat.Acquire(ctx, 1)
				if err != nil {
					return
				}
				lease.Release()
				time.Sleep(time.Millisecond) // if the store is away, the answer comes at once
			}
		})
	}
	eventually(f.t, "they wait", func() bool { return f.seat.Statistics().QueuedPermits == int64(callers) })
	return all.Wait
}

// close expects that Close takes no longer than a call.
func (f *faultyStore) close() {
	begun := time.Now()
	if err := f.s.Close(); err != nil || time.Since(begun) > 2*outageTimeout+patience {
		f.t.Errorf("Close took %v: %v", time.Since(begun), err)
	}
}

// Outage runs two stores through a fault, and closes one of them meanwhile. Both have callers that wait, and a lease that is held
// when the fault begins and is released before it ends.
func Outage(t *testing.T, s Subject, place string, fault Fault) {
	t.Run(fault.Name, func(t *testing.T) {
		s.NoLeaks(t)
		stays, leaves := newFaultyStore(t, s, place), newFaultyStore(t, s, place)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended, left := stays.wait(ctx, 5), leaves.wait(ctx, 5)
		fault.Begin(t)
		eventually(t, "the store counts as away", func() bool { return !stays.take() && stays.s.Health().Err != nil })
		eventually(t, "it is known why", func() bool {
			stays.take()
			err := stays.s.Health().Err
			return err != nil && strings.Contains(err.Error(), fault.ErrorText)
		})
		for range 1000 {
			stays.take()
		}
		stays.held.Release()
		leaves.held.Release()
		leaves.close()
		left()
		fault.End(t)
		cancel()
		ended()
		stays.hasRecovered(fault.LosesData)
		stays.close()
	})
}

// FrequentDisconnects tests a store whose connections break again and again: no call takes long, and afterwards the store recovers.
func FrequentDisconnects(t *testing.T, s Subject, through string, network *testserver.Proxy) {
	s.NoLeaks(t)
	f := newFaultyStore(t, s, through)
	f.held.Release()
	network.Delay(2 * time.Millisecond) // so that each break loses something on its way
	for range short(40, 10) {
		network.Cut()
		for end := time.Now().Add(time.Duration(20+rand.IntN(60)) * time.Millisecond); time.Now().Before(end); {
			f.take()
		}
	}
	network.Delay(0)
	network.Cut() // what is delayed on its way
	f.hasRecovered(false)
	t.Logf("%d were granted: %+v", f.taken, f.s.Counters())
	f.close()
}
