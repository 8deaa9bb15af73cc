package drill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// DelayIsNoOutage tests that a store counts as there if its answers are delayed by less than the timeout.
func DelayIsNoOutage(t *testing.T, s Subject, through string, network Network) {
	s.NoLeaks(t)
	p := newFaultyStore(t, s, through, store.LimiterOptions{Outage: store.FailClosed})
	p.answersByStore()
	const delay = outageTimeout / 6 // in each direction
	network.Delay(delay)
	defer network.Delay(0)
	for range 10 {
		if took := p.take(); took < 2*delay {
			t.Errorf("a call took %v, less than twice the delay", took)
		}
	}
	if p.local > 0 || len(p.reported.of(store.EventStoreLost)) > 0 {
		t.Errorf("a delay is taken for an outage: %v", p.reported.all)
	}
	var wrong string
	if !inTime(func() bool { wrong = p.wrongNumberLeft(p.bucket); return wrong == "" }) { // a call can take longer than the timeout on a busy machine
		t.Error(wrong)
	}
	p.closesInTime()
}

// wrongNumberLeft says how many permits l has left, or returns "" if those are right. A failed call may have taken one.
func (p *faultyStore) wrongNumberLeft(l testLimiter) string {
	left, most, c := l.Statistics().AvailablePermits, int64(outageLimits.Permits)-p.taken, p.s.Counters()
	if left <= most && left >= most-c.Failures {
		return ""
	}
	return fmt.Sprintf("%d are left, at most %d are right, after %d of %d calls failed", left, most, c.Failures, c.Calls)
}

// FrequentDisconnects tests a store whose connections break again and again. It is not known how many permits are
// granted then, but never more than the limit; no call takes long, and afterwards the store recovers.
func FrequentDisconnects(t *testing.T, s Subject, direct, through string, network Network) {
	s.NoLeaks(t)
	p := newFaultyStore(t, s, through, store.LimiterOptions{Outage: store.FailClosed})
	p.answersByStore()
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
		lease, err := p.bucket.TryAcquire(t.Context(), 1)
		if took := time.Since(begun); took > outageTimeout+margin || err != nil {
			t.Errorf("a call took %v: %v", took, err)
		}
		if lease.Acquired() {
			p.taken++
		}
	}
	cutting.Wait()
	network.Delay(0)
	network.Cut() // what is delayed on its way
	if p.taken > int64(outageLimits.Permits) {
		t.Errorf("%d were granted of %d", p.taken, outageLimits.Permits)
	}
	eventually(t, "the store is there", func() bool { return p.s.Health().Err == nil })
	other := must(build(s.store(t, direct, store.Options{}), p.name, limitertest.TokenBucket, outageLimits, nil))(t)
	if wrong := p.wrongNumberLeft(other); wrong != "" {
		t.Error(wrong)
	}
	t.Logf("%d were granted: %+v", p.taken, p.s.Counters())
	p.closesInTime()
}
