package drill

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// CloseDuringFault closes a store while its server does not answer: with callers who wait in a queue, a call under way, a
// lease that is held and one that was just released.
func CloseDuringFault(t *testing.T, s Subject, place string, trouble Fault) {
	t.Run("leaving while "+trouble.Name, func(t *testing.T) {
		if s.NoLeaks != nil {
			s.NoLeaks(t)
		}
		p := newPatient(t, s, place, store.LimiterOptions{Outage: store.FailClosed})
		p.answersByStore()
		released := acquire(t, p.seats)
		full := must(build(p.s, name("full"), limitertest.Concurrency, oneSeat, nil))(t)
		acquire(t, full) // and is never released
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() { p.isRejected(full) })
		}
		eventually(t, "they wait", func() bool { return full.Statistics().QueuedPermits == 5 })
		trouble.Begin(t)
		released.Release()
		callers.Go(func() { _, _ = p.returns(p.bucket) }) // granted, maybe: not every trouble begins at once
		p.closesInTime()
		callers.Wait()
		trouble.End(t)
	})
}

// isRejected expects that Acquire comes to nothing, be it because the limiter is closed or because the store is away.
func (p *faultyStore) isRejected(l limiter.Limiter) {
	if lease, err := p.returns(l); lease.Acquired() {
		p.errorf("granted: %v", err)
	}
}

// returns expects that Acquire does, whatever the answer.
func (p *faultyStore) returns(l limiter.Limiter) (limiter.Lease, error) {
	begun := time.Now()
	lease, err := l.Acquire(context.Background(), 1)
	if took := time.Since(begun); took > patience {
		p.errorf("a caller waited %v", took)
	}
	return lease, err
}
