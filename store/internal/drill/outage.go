package drill

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

var outageLimits = limitertest.Limits{Permits: 100, Period: time.Hour, TokensPerPeriod: 1, Segments: 4, QueueLimit: 100}

// localLimit is what an instance grants by falling back locally.
const localLimit = 10

// margin is how much longer than CallTimeout a call can take on a busy machine.
const margin = 700 * time.Millisecond

// Outage runs limiters of each outage policy through a fault.
func Outage(t *testing.T, s Subject, place string, fault Fault) {
	t.Run(fault.Name, func(t *testing.T) {
		s.NoLeaks(t)
		var all []*faultyStore
		for _, how := range []store.LimiterOptions{
			{Outage: store.FailClosed}, {Outage: store.FailOpen, NoCoalescing: true},
			{Outage: store.FallBackLocally, LocalShare: float64(localLimit) / float64(outageLimits.Permits)},
		} {
			all = append(all, newFaultyStore(t, s, place, how))
		}
		together := func(stage func(*faultyStore)) {
			var running sync.WaitGroup
			for _, p := range all {
				running.Go(func() { stage(p) })
			}
			running.Wait()
		}
		together((*faultyStore).answersByStore)
		fault.Begin(t)
		together((*faultyStore).losesStore)
		together(func(p *faultyStore) { p.answersByPolicy(fault) })
		fault.End(t)
		together((*faultyStore).recovers)
		together(func(p *faultyStore) { p.hasRecovered(fault.LosesData) })
		b := s.backend(t, place)
		together(func(p *faultyStore) { p.definitionExists(b) })
		together((*faultyStore).closesInTime)
		together((*faultyStore).reportedOnce)
	})
}

// CloseDuringFault closes a store during a fault, with callers waiting in a queue, a call under way, a lease that is
// held, and one that was just released.
func CloseDuringFault(t *testing.T, s Subject, place string, fault Fault) {
	t.Run("leaving while "+fault.Name, func(t *testing.T) {
		s.NoLeaks(t)
		p := newFaultyStore(t, s, place, store.LimiterOptions{Outage: store.FailClosed})
		p.answersByStore()
		released := acquire(t, p.seats)
		full := must(build(p.s, uniqueName("full"), limitertest.Concurrency, oneSeat, nil))(t)
		acquire(t, full) // and is never released
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				if lease, err := p.acquireReturns(full); lease.Acquired() {
					p.errorf("granted: %v", err)
				}
			})
		}
		eventually(t, "they wait", func() bool { return full.Statistics().QueuedPermits == 5 })
		fault.Begin(t)
		released.Release()
		callers.Go(func() { _, _ = p.acquireReturns(p.bucket) }) // can be granted: not every fault begins at once
		p.closesInTime()
		callers.Wait()
		fault.End(t)
	})
}

// A faultyStore is a store that runs into a fault, with limiters of one outage policy. Its methods are called from
// goroutines of their own, one at a time.
type faultyStore struct {
	t        testing.TB
	name     string
	how      store.LimiterOptions
	s        *store.Store
	reported events
	bucket   testLimiter
	seats    testLimiter
	taken    int64 // permits of the bucket that the store has granted
	local    int64 // and that were granted without the store
	unsure   int64 // failed calls that may have been carried out
}

func newFaultyStore(t testing.TB, s Subject, place string, how store.LimiterOptions) *faultyStore {
	p := &faultyStore{t: t, name: uniqueName("outage"), how: how}
	p.s = s.store(t, place, store.Options{
		CallTimeout: outageTimeout, ProbeInterval: probeInterval, RefreshInterval: time.Second, OnEvent: p.reported.add,
	})
	p.bucket = must(build(p.s, p.name, limitertest.TokenBucket, outageLimits, &how))(t)
	how.NoCoalescing, how.LeaseTTL = false, 2*time.Second
	p.seats = must(build(p.s, p.name+"-seats", limitertest.Concurrency, outageLimits, &how))(t)
	return p
}

func (p *faultyStore) errorf(format string, args ...any) {
	p.t.Errorf("%v: "+format, append([]any{p.how.Outage}, args...)...)
}

// answersByStore expects that the store decides. Afterwards, a lease is held until the end.
func (p *faultyStore) answersByStore() {
	ok := inTime(func() bool { p.take(); return p.taken == 5 })
	var err error
	held := inTime(func() bool { // the first use also sets the limits, and can take longer than a call on a busy machine
		_, err = decided(p.seats.TryAcquire(context.Background(), 1))
		return err == nil
	})
	if !held || !ok {
		p.errorf("%d were granted: %v", p.taken, err)
	}
}

// take takes one permit, and checks how long that takes and what the answer is.
func (p *faultyStore) take() (took time.Duration) {
	begun := time.Now()
	lease, err := p.bucket.TryAcquire(context.Background(), 1)
	took = time.Since(begun)
	if took > outageTimeout+margin {
		p.errorf("a call took %v", took)
	}
	reason, without := store.OutageKey.From(lease)
	switch {
	case err != nil:
		p.errorf("an error: %v", err)
	case !without:
		if !lease.Acquired() {
			p.errorf("the store has rejected")
		}
		p.taken++
		return took
	case !errors.Is(reason, store.ErrUnavailable):
		p.errorf("the reason is %v", reason)
	}
	if lease.Acquired() {
		p.local++
	}
	switch p.how.Outage {
	case store.FailClosed:
		if lease.Acquired() || lease.Reason() != limiter.ReasonUnavailable {
			p.errorf("granted %v: %s", lease.Acquired(), lease.Reason())
		}
	case store.FailOpen:
		if !lease.Acquired() {
			p.errorf("rejected: %s", lease.Reason())
		}
	case store.FallBackLocally:
		if p.local > localLimit || !lease.Acquired() && p.local < localLimit {
			p.errorf("granted %v after %d of %d", lease.Acquired(), p.local, localLimit)
		}
	}
	return took
}

// losesStore makes calls until the store counts as away.
func (p *faultyStore) losesStore() {
	for end := time.Now().Add(patience); p.s.Health().Err == nil; {
		if p.take(); time.Now().After(end) {
			p.errorf("the store never counts as away")
			return
		}
		time.Sleep(time.Millisecond) // without it, thousands of permits are taken before the fault takes effect
		p.unsure = p.s.Counters().Failures
	}
}

// answersByPolicy expects that every answer is the policy's and takes microseconds, and that one call at a time probes
// the store.
func (p *faultyStore) answersByPolicy(fault Fault) {
	took := make([]time.Duration, 1001)
	for i := range took {
		took[i] = p.take()
	}
	if m := median(took); m > 100*time.Microsecond {
		p.errorf("a call takes %v though the store is away", m)
	}
	if p.how.Outage == store.FallBackLocally && p.local != localLimit {
		p.errorf("%d of %d were granted locally", p.local, localLimit)
	}
	if err := p.bucket.reconfigure(newLimits); !errors.Is(err, store.ErrUnavailable) {
		p.errorf("Reconfigure returns %v", err)
	}
	p.bucket.Statistics()
	before, begun := p.s.Counters(), time.Now()
	ok := inTime(func() bool { p.take(); return p.s.Counters().Failures >= before.Failures+1 })
	if !ok {
		p.errorf("the store is not probed")
	}
	// A probe in each shortest interval, and what was under way; leases and listeners make no calls.
	if n, most := p.s.Counters().Calls-before.Calls, int64(time.Since(begun)/(probeInterval*8/10))+3; n > most {
		p.errorf("%d calls to a store that is away, at most %d are right", n, most)
	}
	if err := p.s.Health().Err; err == nil || !strings.Contains(err.Error(), fault.ErrorText) {
		p.errorf("the store is away because of: %v", err)
	}
}
