package drill

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// recovers: the store is found while a crowd asks all the time. What the crowd has asked in vain does not come upon it
// now, and callers that arrive together share a round trip.
func (p *faultyStore) recovers() {
	const people = 50
	ctx, cancel := context.WithCancel(context.Background())
	var crowd sync.WaitGroup
	var asked atomic.Int64
	for range people {
		crowd.Go(func() {
			for ctx.Err() == nil {
				asked.Add(1)
				_, _ = p.bucket.TryAcquire(ctx, 0) // takes nothing
				time.Sleep(time.Millisecond)       // a caller that does something else, too
			}
		})
	}
	if !inTime(func() bool { return p.s.Health().Err == nil }) {
		p.errorf("the store is not found: %v", p.s.Health().Err)
	}
	calls, most := p.s.Counters().Calls, -asked.Load()
	time.Sleep(200 * time.Millisecond) // calls at once, and calls a moment later
	calls, most = p.s.Counters().Calls-calls, most+asked.Load()
	cancel()
	crowd.Wait()
	if !p.how.NoCoalescing {
		most /= 2
	}
	// A few more are for leases, definitions and listening.
	if most += people + 20; calls > most {
		p.errorf("%d calls after the recovery, at most %d are right", calls, most)
	}
	p.t.Logf("%v: %d calls after the recovery, at most %d are right", p.how.Outage, calls, most)
}

// hasRecovered: everything is as before the trouble, but for what the server has forgotten.
func (p *faultyStore) hasRecovered(forgets bool) {
	if forgets {
		p.taken, p.unsure = 0, 0 // nothing that was granted before is known any more
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
	// The lease that was held goes on or has ended, and what could not be released is.
	if !inTime(func() bool { return p.seats.Statistics().AvailablePermits >= int64(outageLimits.Permits)-1 }) {
		p.errorf("leases are missing: %+v", p.seats.Statistics())
	}
}

// definitionExists, again if the server has forgotten it: other instances need it.
func (p *faultyStore) definitionExists(b backend.Backend) {
	if !inTime(func() bool {
		_, _ = p.bucket.TryAcquire(context.Background(), 0) // every use looks after RefreshInterval
		d, _, err := b.Load(context.Background(), p.name)
		return err == nil && d != nil && d.Permits == int64(outageLimits.Permits)
	}) {
		p.errorf("the store was not told of the limits again")
	}
}

// closesInTime: Close takes no longer than a call.
func (p *faultyStore) closesInTime() {
	begun := time.Now()
	if err := p.s.Close(); err != nil {
		p.errorf("Close: %v", err)
	}
	if took := time.Since(begun); took > 2*outageTimeout+margin {
		p.errorf("Close took %v", took)
	}
}

// reportedOnce that the store was lost, and that it was found.
func (p *faultyStore) reportedOnce() {
	all := p.told.of(store.EventStoreLost, store.EventStoreRecovered)
	if len(all) != 2 || all[0].Kind != store.EventStoreLost || all[0].Err == nil || all[1].Kind != store.EventStoreRecovered || all[1].Away <= 0 {
		p.errorf("told: %+v", all)
	}
}
