package drill

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/tools/testserver"
)

// Outage runs limiters of each outage policy through a fault.
func Outage(t *testing.T, s Subject, place string, fault Fault) {
	t.Run(fault.Name, func(t *testing.T) {
		s.NoLeaks(t)
		var all []*faultyStore
		for _, options := range []store.LimiterOptions{
			{Outage: store.FailClosed}, {Outage: store.FailOpen},
			{Outage: store.FallBackLocally, LocalShare: float64(localLimit) / float64(outageLimits.Permits)},
		} {
			all = append(all, newFaultyStore(t, s, place, options))
		}
		together := func(stage func(*faultyStore)) {
			var running sync.WaitGroup
			for _, f := range all {
				running.Go(func() { stage(f) })
			}
			running.Wait()
		}
		together((*faultyStore).answersByStore)
		fault.Begin(t)
		together((*faultyStore).losesStore)
		together(func(f *faultyStore) { f.answersByPolicy(fault) })
		fault.End(t)
		together((*faultyStore).recovers)
		together(func(f *faultyStore) { f.hasRecovered(fault.LosesData) })
		b := s.backend(t, place)
		together(func(f *faultyStore) { f.definitionExists(b) })
		together((*faultyStore).closesInTime)
		together((*faultyStore).reportedOnce)
	})
}

// CloseDuringFault closes a store during a fault, with callers waiting in a queue, a call under way, a lease that is
// held, and one that was just released.
func CloseDuringFault(t *testing.T, s Subject, place string, fault Fault) {
	t.Run("leaving while "+fault.Name, func(t *testing.T) {
		s.NoLeaks(t)
		f := newFaultyStore(t, s, place, store.LimiterOptions{Outage: store.FailClosed})
		f.answersByStore()
		released := f.acquire(f.concurrency)
		full := must(build(f.s, uniqueName("full"), limitertest.Concurrency, onePermit, nil))(t)
		f.acquire(full) // and is never released
		var callers sync.WaitGroup
		var faulty atomic.Bool
		for range 5 {
			callers.Go(func() {
				for asks := true; asks; asks = !faulty.Load() { // on a busy machine an answer can come too late
					if lease, err := f.acquireReturns(full); lease.Acquired() {
						f.errorf("granted: %v", err)
					}
				}
			})
		}
		eventually(t, "they wait", func() bool { return full.Statistics().QueuedPermits == 5 })
		faulty.Store(true)
		fault.Begin(t)
		released.Release()
		callers.Go(func() { _, _ = f.acquireReturns(f.bucket) }) // can be granted: not every fault begins at once
		f.closesInTime()
		callers.Wait()
		fault.End(t)
	})
}

// DelayIsNoOutage tests that a store counts as there if its answers are delayed by less than the timeout.
func DelayIsNoOutage(t *testing.T, s Subject, through string, network *testserver.Proxy) {
	s.NoLeaks(t)
	f := newFaultyStore(t, s, through, store.LimiterOptions{Outage: store.FailClosed})
	f.answersByStore()
	const delay = outageTimeout / 6 // in each direction
	network.Delay(delay)
	defer network.Delay(0)
	for range 10 {
		if took := f.take(); took < 2*delay {
			t.Errorf("a call took %v, less than twice the delay", took)
		}
	}
	if len(f.reported.of(store.EventStoreLost)) > 0 {
		t.Errorf("a delay is taken for an outage: %v", f.reported.all)
	}
	var wrong string
	if !inTime(func() bool { wrong = f.wrongNumberLeft(f.bucket); return wrong == "" }) { // a call can take longer than the timeout on a busy machine
		t.Error(wrong)
	}
	f.closesInTime()
}

// FrequentDisconnects tests a store whose connections break again and again. Permits can be lost then, but no more than
// the limit are granted, no call takes long, and afterwards the store recovers.
func FrequentDisconnects(t *testing.T, s Subject, direct, through string, network *testserver.Proxy) {
	s.NoLeaks(t)
	f := newFaultyStore(t, s, through, store.LimiterOptions{Outage: store.FailClosed})
	f.answersByStore()
	network.Delay(2 * time.Millisecond) // so that each break loses something on its way
	ctx, stop := context.WithTimeout(t.Context(), time.Duration(short(2000, 500))*time.Millisecond)
	defer stop()
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for ctx.Err() == nil {
			network.Cut()
			time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond) // the life of a connection
		}
	})
	for ctx.Err() == nil {
		begun := time.Now()
		lease, err := f.bucket.TryAcquire(t.Context(), 1)
		if took := time.Since(begun); took > outageTimeout+margin || err != nil {
			t.Errorf("a call took %v: %v", took, err)
		}
		if lease.Acquired() {
			f.taken++
		}
	}
	cutting.Wait()
	network.Delay(0)
	network.Cut() // what is delayed on its way
	if f.taken > int64(outageLimits.Permits) {
		t.Errorf("%d were granted of %d", f.taken, outageLimits.Permits)
	}
	eventually(t, "the store is there", func() bool { return f.s.Health().Err == nil })
	other := must(build(s.store(t, direct, store.Options{}), f.name, limitertest.TokenBucket, outageLimits, nil))(t)
	if wrong := f.wrongNumberLeft(other); wrong != "" {
		t.Error(wrong)
	}
	t.Logf("%d were granted: %+v", f.taken, f.s.Counters())
	f.closesInTime()
}
