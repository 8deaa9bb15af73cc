package drill

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// recovers expects that the store counts as there again while many callers use it all the time. Their earlier requests
// are not sent then, and callers that arrive together share a round trip.
func (p *faultyStore) recovers() {
	const callers = 50
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var requests atomic.Int64
	for range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				requests.Add(1)
				_, _ = p.bucket.TryAcquire(ctx, 0) // takes nothing
				time.Sleep(time.Millisecond)       // the caller's other work
			}
		})
	}
	if !inTime(func() bool { return p.s.Health().Err == nil }) {
		p.errorf("the store is not found: %v", p.s.Health().Err)
	}
	calls, most := p.s.Counters().Calls, -requests.Load()
	time.Sleep(200 * time.Millisecond) // calls at once, and calls a moment later
	calls, most = p.s.Counters().Calls-calls, most+requests.Load()
	cancel()
	running.Wait()
	if !p.how.NoCoalescing {
		most /= 2
	}
	// A few more are for leases, definitions and listening.
	if most += callers + 20; calls > most {
		p.errorf("%d calls after the recovery, at most %d are right", calls, most)
	}
	p.t.Logf("%v: %d calls after the recovery, at most %d are right", p.how.Outage, calls, most)
}

// hasRecovered expects that the store decides as before the fault, apart from what the server has lost.
func (p *faultyStore) hasRecovered(dataLost bool) {
	if dataLost {
		p.taken, p.unsure = 0, 0
	}
	for range 5 {
		had := p.local
		if p.take(); p.local != had {
			p.errorf("answered without the store")
		}
	}
	left := p.bucket.Statistics().AvailablePermits
	if most := int64(outageLimits.Permits) - p.taken; left > most || left < most-p.unsure {
		p.errorf("%d permits are left after %d were granted, %d may be lost", left, p.taken, p.unsure)
	}
	// The lease that was held goes on or has ended, and releases that failed were repeated.
	if !inTime(func() bool { return p.seats.Statistics().AvailablePermits >= int64(outageLimits.Permits)-1 }) {
		p.errorf("leases are missing: %+v", p.seats.Statistics())
	}
}

// definitionExists expects that the server has the limits, again if it has lost them: other instances need them.
func (p *faultyStore) definitionExists(b backend.Backend) {
	if !inTime(func() bool {
		_, _ = p.bucket.TryAcquire(context.Background(), 0) // after RefreshInterval, every use checks them
		d, _, err := b.Load(context.Background(), p.name)
		return err == nil && d != nil && d.Permits == int64(outageLimits.Permits)
	}) {
		p.errorf("the limits were not defined again")
	}
}

// acquireReturns expects that Acquire returns in time, whatever the answer.
func (p *faultyStore) acquireReturns(l limiter.Limiter) (limiter.Lease, error) {
	begun := time.Now()
	lease, err := l.Acquire(context.Background(), 1)
	if took := time.Since(begun); took > patience {
		p.errorf("a caller waited %v", took)
	}
	return lease, err
}

// closesInTime expects that Close takes no longer than a call.
func (p *faultyStore) closesInTime() {
	begun := time.Now()
	if err := p.s.Close(); err != nil {
		p.errorf("Close: %v", err)
	}
	if took := time.Since(begun); took > 2*outageTimeout+margin {
		p.errorf("Close took %v", took)
	}
}

// reportedOnce expects one event that the store was lost, and one that it has recovered.
func (p *faultyStore) reportedOnce() {
	all := p.reported.of(store.EventStoreLost, store.EventStoreRecovered)
	if len(all) != 2 || all[0].Kind != store.EventStoreLost || all[0].Err == nil || all[1].Kind != store.EventStoreRecovered || all[1].Away <= 0 {
		p.errorf("reported: %+v", all)
	}
}
