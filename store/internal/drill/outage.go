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
func Outage(t *testing.T, s Subject, place string, trouble Fault) {
	t.Run(trouble.Name, func(t *testing.T) {
		if s.NoLeaks != nil {
			s.NoLeaks(t)
		}
		var patients []*faultyStore
		for _, how := range []store.LimiterOptions{
			{Outage: store.FailClosed}, {Outage: store.FailOpen, NoCoalescing: true},
			{Outage: store.FallBackLocally, LocalShare: float64(localLimit) / float64(outageLimits.Permits)},
		} {
			patients = append(patients, newPatient(t, s, place, how))
		}
		together := func(stage func(*faultyStore)) {
			var all sync.WaitGroup
			for _, p := range patients {
				all.Go(func() { stage(p) })
			}
			all.Wait()
		}
		together((*faultyStore).answersByStore)
		trouble.Begin(t)
		together((*faultyStore).losesStore)
		together(func(p *faultyStore) { p.answersByPolicy(trouble) })
		trouble.End(t)
		together((*faultyStore).recovers)
		together(func(p *faultyStore) { p.hasRecovered(trouble.LosesData) })
		for _, p := range patients {
			p.definitionExists(s.backend(t, place))
		}
		together((*faultyStore).closesInTime)
		together((*faultyStore).reportedOnce)
	})
}

// A faultyStore is a store in trouble, with limiters of one policy. Its methods are called from goroutines of their own.
type faultyStore struct {
	t      testing.TB
	name   string
	how    store.LimiterOptions
	place  string
	s      *store.Store
	told   events
	bucket made
	seats  made
	taken  int64 // granted by the store, of the bucket
	local  int64 // granted without the store
	unsure int64 // failed calls that may have been carried out
}

func newPatient(t testing.TB, s Subject, place string, how store.LimiterOptions) *faultyStore {
	p := &faultyStore{t: t, name: name("outage"), how: how, place: place}
	p.s = s.store(t, place, store.Options{
		CallTimeout: outageTimeout, ProbeInterval: probeInterval, RefreshInterval: time.Second, OnEvent: p.told.tell,
	})
	p.bucket = must(build(p.s, p.name, limitertest.TokenBucket, outageLimits, &how))(t)
	how.NoCoalescing, how.LeaseTTL = false, 2*time.Second
	p.seats = must(build(p.s, p.name+"-seats", limitertest.Concurrency, outageLimits, &how))(t)
	return p
}

func (p *faultyStore) errorf(format string, args ...any) {
	p.t.Errorf("%v: "+format, append([]any{p.how.Outage}, args...)...)
}

// answersByStore: the store is asked.
func (p *faultyStore) answersByStore() {
	ok := inTime(func() bool { p.take(); return p.taken == 5 })
	var err error
	held := inTime(func() bool { // the first use also sets the limits, and can take longer than a call on a busy machine
		_, err = answered(p.seats.TryAcquire(context.Background(), 1))
		return err == nil
	})
	if !held || !ok { // it is held to the end
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

// losesStore: single calls fail, until the store counts as away.
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

// answersByPolicy: every answer is the policy's and costs nothing, whatever is asked, and the store is looked for by one call.
func (p *faultyStore) answersByPolicy(trouble Fault) {
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
	// A probe every fifth less than the interval, and what was under way; leases and listeners ask nothing.
	if n, most := p.s.Counters().Calls-before.Calls, int64(time.Since(begun)/(probeInterval*8/10))+3; n > most {
		p.errorf("%d calls to a store that is away, at most %d are right", n, most)
	}
	if err := p.s.Health().Err; err == nil || !strings.Contains(err.Error(), trouble.ErrorText) {
		p.errorf("the store is away because of: %v", err)
	}
}
