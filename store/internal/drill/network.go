package drill

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// DelayIsNoOutage as long as it is shorter than the timeout.
func DelayIsNoOutage(t *testing.T, s Subject, through string, network Network) {
	if s.NoLeaks != nil {
		s.NoLeaks(t)
	}
	p := newPatient(t, s, through, store.LimiterOptions{Outage: store.FailClosed})
	p.answersByStore()
	const delay = outageTimeout / 6 // in each direction
	network.Delay(delay)
	defer network.Delay(0)
	for range 10 {
		if took := p.take(); took < 2*delay {
			t.Errorf("a call took %v, less than twice the delay", took)
		}
	}
	if p.local > 0 || len(p.told.of(store.EventStoreLost)) > 0 {
		t.Errorf("a delay is taken for an outage: %v", p.told.all)
	}
	most, left := int64(outageLimits.Permits)-p.taken, int64(0)
	ok := inTime(func() bool { // a call may take longer than the timeout on a machine that is busy with other tests
		left = p.bucket.Statistics().AvailablePermits
		return left <= most && left >= most-p.s.Counters().Failures
	})
	if !ok {
		t.Errorf("%d are left, at most %d are right, after %d calls failed", left, most, p.s.Counters().Failures)
	}
	p.closesInTime()
}

// FrequentDisconnects is the drill: connections break again and again. Then it is not known how much is granted, but never more than the
// limit, no call takes long, and afterwards everything is as it was.
func FrequentDisconnects(t *testing.T, s Subject, direct, through string, network Network) {
	if s.NoLeaks != nil {
		s.NoLeaks(t)
	}
	p := newPatient(t, s, through, store.LimiterOptions{Outage: store.FailClosed})
	p.answersByStore()
	network.Delay(2 * time.Millisecond) // so that there is always something on its way that is lost
	ctx, stop := context.WithTimeout(t.Context(), time.Duration(short(2000, 500))*time.Millisecond)
	defer stop()
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for ctx.Err() == nil {
			network.Cut()
			time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond) // so long a connection lives
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
	left := other.Statistics().AvailablePermits
	most, failed := int64(outageLimits.Permits)-p.taken, p.s.Counters().Failures
	if left > most || left < most-failed {
		t.Errorf("%d are left after %d were granted", left, p.taken)
	}
	t.Logf("%d were granted, %d are left, %d of %d calls failed", p.taken, left, failed, p.s.Counters().Calls)
	p.closesInTime()
}
