package drill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

var outageLimits = limitertest.Limits{Permits: 100, Period: time.Hour, TokensPerPeriod: 1, Segments: 4, QueueLimit: 100}

// localLimit is what an instance grants by falling back locally.
const localLimit = 10

// margin is how much longer than CallTimeout a call can take: only one that hangs takes longer, also on a busy machine.
const margin = patience

// A faultyStore is a store that runs into a fault, with limiters of one outage policy. Its methods are called from
// goroutines of their own, one at a time.
type faultyStore struct {
	t           testing.TB
	name        string
	options     store.LimiterOptions
	s           *store.Store
	reported    events
	bucket      testLimiter
	concurrency testLimiter
	taken       int64 // permits of the bucket that the store has granted
	local       int64 // permits of the bucket that were granted without the store
	unsure      int64 // failed calls that may have taken a permit in the store
}

func newFaultyStore(t testing.TB, s Subject, place string, options store.LimiterOptions) *faultyStore {
	f := &faultyStore{t: t, name: uniqueName("outage"), options: options}
	f.s = s.store(t, place, store.Options{
		CallTimeout: outageTimeout, ProbeInterval: probeInterval, RefreshInterval: time.Second, OnEvent: f.reported.add,
	})
	f.bucket = must(build(f.s, f.name, limitertest.TokenBucket, outageLimits, &options))(t)
	options.LeaseTTL = 2 * time.Second
	f.concurrency = must(build(f.s, f.name+"-concurrency", limitertest.Concurrency, outageLimits, &options))(t)
	return f
}

func (f *faultyStore) errorf(format string, args ...any) {
	f.t.Errorf("%v: "+format, append([]any{f.options.Outage}, args...)...)
}

// answersByStore expects that the store decides. It acquires a lease, which it does not release.
func (f *faultyStore) answersByStore() {
	if !inTime(func() bool { f.take(); return f.taken == 5 }) {
		f.errorf("%d were granted", f.taken)
	}
	f.acquire(f.concurrency)
}

// acquire expects a permit of l, which has not been used before. The first use also sets the limits, and can take longer
// than a call on a busy machine.
func (f *faultyStore) acquire(l limiter.Limiter) limiter.Lease {
	var lease limiter.Lease
	var err error
	if !inTime(func() bool {
		lease, err = decided(l.TryAcquire(context.Background(), 1))
		return err == nil && lease.Acquired()
	}) {
		f.errorf("no permit: %v", err)
	}
	return lease
}

// take takes one permit, and checks what the answer is, and that it comes.
func (f *faultyStore) take() (took time.Duration) {
	begun := time.Now()
	lease, err := f.bucket.TryAcquire(context.Background(), 1)
	took = time.Since(begun)
	if took > outageTimeout+margin {
		f.errorf("a call took %v", took)
	}
	reason, without := store.OutageKey.From(lease)
	switch {
	case err != nil:
		f.errorf("an error: %v", err)
	case !without:
		if !lease.Acquired() {
			f.errorf("the store has rejected")
		}
		f.taken++
		return took
	case !errors.Is(reason, store.ErrUnavailable):
		f.errorf("the reason is %v", reason)
	}
	if lease.Acquired() {
		f.local++
	}
	switch f.options.Outage {
	case store.FailClosed:
		if lease.Acquired() || lease.Reason() != limiter.ReasonUnavailable {
			f.errorf("granted %v: %s", lease.Acquired(), lease.Reason())
		}
	case store.FailOpen:
		if !lease.Acquired() {
			f.errorf("rejected: %s", lease.Reason())
		}
	case store.FallBackLocally:
		if f.local > localLimit || !lease.Acquired() && f.local < localLimit {
			f.errorf("granted %v after %d of %d", lease.Acquired(), f.local, localLimit)
		}
	}
	return took
}

// losesStore makes calls until the store counts as away.
func (f *faultyStore) losesStore() {
	for end := time.Now().Add(patience); f.s.Health().Err == nil; {
		if f.take(); time.Now().After(end) {
			f.errorf("the store never counts as away")
			return
		}
		time.Sleep(time.Millisecond) // without it, thousands of permits are taken before the fault takes effect
		f.unsure = f.s.Counters().Failures
	}
}

// answersByPolicy expects that every answer is the policy's, and that one call at a time probes the store.
func (f *faultyStore) answersByPolicy(fault Fault) {
	before, begun := f.s.Counters(), time.Now()
	for range 1001 {
		f.take()
	}
	if f.options.Outage == store.FallBackLocally && f.local != localLimit {
		f.errorf("%d of %d were granted locally", f.local, localLimit)
	}
	f.chargesByPolicy()
	if err := f.bucket.reconfigure(newLimits); !errors.Is(err, store.ErrUnavailable) {
		f.errorf("Reconfigure returns %v", err)
	}
	f.bucket.Statistics()
	ok := inTime(func() bool { f.take(); return f.s.Counters().Failures >= before.Failures+1 })
	if !ok {
		f.errorf("the store is not probed")
	}
	// The store is probed at most once in 80% of probeInterval. Three more calls can have been under way. Leases and
	// listeners make no calls.
	if n, most := f.s.Counters().Calls-before.Calls, int64(time.Since(begun)/(probeInterval*8/10))+3; n > most {
		f.errorf("%d calls to a store that is away, at most %d are right", n, most)
	}
	if err := f.s.Health().Err; err == nil || !strings.Contains(err.Error(), fault.ErrorText) {
		f.errorf("the store is away because of: %v", err)
	}
}

// chargesByPolicy expects that a charge fails, or counts in the limiter of the process, which has
// granted all its permits.
func (f *faultyStore) chargesByPolicy() {
	for i := range 101 {
		level, err := f.bucket.Charge(context.Background(), 1)
		switch {
		case f.options.Outage != store.FallBackLocally && !errors.Is(err, store.ErrUnavailable):
			f.errorf("a charge returns %v", err)
		case f.options.Outage == store.FallBackLocally && (err != nil || level.Remaining != int64(-1-i)):
			f.errorf("%d remain after charge %d: %v", level.Remaining, i, err)
		}
	}
}

// recovers expects that the store counts as there again while many callers use it all the time. After the recovery,
// requests from before are not sent, and callers that arrive together share a round trip.
func (f *faultyStore) recovers() {
	const callers = 50
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var requests atomic.Int64
	for range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				requests.Add(1)
				_, _ = f.bucket.TryAcquire(ctx, 0) // takes nothing
				time.Sleep(time.Millisecond)       // the caller's other work
			}
		})
	}
	if !inTime(func() bool { return f.s.Health().Err == nil }) {
		f.errorf("the store is not found: %v", f.s.Health().Err)
	}
	calls, most := f.s.Counters().Calls, -requests.Load()
	time.Sleep(200 * time.Millisecond) // so that calls right after the recovery and later ones are counted
	calls, most = f.s.Counters().Calls-calls, most+requests.Load()
	cancel()
	running.Wait()
	most /= 2
	// A few more are for leases, definitions and listening.
	if most += callers + 20; calls > most {
		f.errorf("%d calls after the recovery, at most %d are right", calls, most)
	}
	f.t.Logf("%v: %d calls after the recovery, at most %d are right", f.options.Outage, calls, most)
}

// hasRecovered expects that the store decides as before the fault, apart from what the server has lost.
func (f *faultyStore) hasRecovered(dataLost bool) {
	if dataLost {
		f.taken, f.unsure = 0, 0
	}
	for range 5 {
		had := f.local
		if f.take(); f.local != had {
			f.errorf("answered without the store")
		}
	}
	left := f.bucket.Statistics().AvailablePermits
	if most := int64(outageLimits.Permits) - f.taken; left > most || left < most-f.unsure {
		f.errorf("%d permits are left after %d were granted, %d may be lost", left, f.taken, f.unsure)
	}
	// The lease that was held goes on or has ended, and releases that failed were repeated.
	if !inTime(func() bool { return f.concurrency.Statistics().AvailablePermits >= int64(outageLimits.Permits)-1 }) {
		f.errorf("leases are missing: %+v", f.concurrency.Statistics())
	}
}

// definitionExists expects that the server has the limits, or has them again if it had lost them: other instances need
// them.
func (f *faultyStore) definitionExists(b backend.Backend) {
	if !inTime(func() bool {
		_, _ = f.bucket.TryAcquire(context.Background(), 0) // after RefreshInterval, every use checks them
		d, _, err := b.Load(context.Background(), f.name)
		return err == nil && d != nil && d.Permits == int64(outageLimits.Permits)
	}) {
		f.errorf("the limits were not defined again")
	}
}

// acquireReturns expects that Acquire returns in time, whatever the answer.
func (f *faultyStore) acquireReturns(l limiter.Limiter) (limiter.Lease, error) {
	begun := time.Now()
	lease, err := l.Acquire(context.Background(), 1)
	if took := time.Since(begun); took > patience {
		f.errorf("a caller waited %v", took)
	}
	return lease, err
}

// closesInTime expects that Close takes no longer than a call.
func (f *faultyStore) closesInTime() {
	begun := time.Now()
	if err := f.s.Close(); err != nil {
		f.errorf("Close: %v", err)
	}
	if took := time.Since(begun); took > 2*outageTimeout+margin {
		f.errorf("Close took %v", took)
	}
}

// reportedOnce expects one event that the store was lost, and one that it has recovered.
func (f *faultyStore) reportedOnce() {
	all := f.reported.of(store.EventStoreLost, store.EventStoreRecovered)
	if len(all) != 2 || all[0].Kind != store.EventStoreLost || all[0].Err == nil || all[1].Kind != store.EventStoreRecovered || all[1].Away <= 0 {
		f.errorf("reported: %+v", all)
	}
}

// wrongNumberLeft describes what is wrong with the number of permits that l has left, and returns "" if it is right. A
// failed call may have taken a permit.
func (f *faultyStore) wrongNumberLeft(l testLimiter) string {
	left, most, c := l.Statistics().AvailablePermits, int64(outageLimits.Permits)-f.taken, f.s.Counters()
	if left <= most && left >= most-c.Failures {
		return ""
	}
	return fmt.Sprintf("%d are left, at most %d are right, after %d of %d calls failed", left, most, c.Failures, c.Calls)
}
