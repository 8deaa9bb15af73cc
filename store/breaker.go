package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// ErrUnavailable means that the store could not be asked. It is the value of [OutageKey] and the error of Reconfigure,
// wrapped with the reason.
var ErrUnavailable = errors.New("store: unavailable")

// errTimeout is the reason if a call has not returned within Options.CallTimeout.
var errTimeout = errors.New("no answer in time")

// A breaker is the circuit breaker of a shard: while the shard is away, a request costs one atomic load, and one
// goroutine probes the shard.
//
// Calls about leases are counted by themselves. If a server forbids only what they need, the successes of other calls
// would hide that, or an outage would end with the next probe of a bucket and begin again. So if only they fail, only they
// count as away, and a probe takes a lease.
type breaker struct {
	s       *Store
	shard   *shard                      // the one that it guards
	away    atomic.Pointer[outageState] // nil while the shard is there
	probing atomic.Bool                 // probeInBackground is running

	mu        sync.Mutex
	decisions failureRow // of all calls but those about leases
	leases    failureRow
}

type outageState struct {
	err    error
	since  time.Time
	leases bool // only calls about leases fail
}

// err returns why the shard is away, or nil. Calls about leases ask leasesErr.
func (b *breaker) err() error {
	if o := b.away.Load(); o != nil && !o.leases {
		return o.err
	}
	return nil
}

// leasesErr returns why the shard is away, or away for leases, or nil.
func (b *breaker) leasesErr() error {
	if o := b.away.Load(); o != nil {
		return o.err
	}
	return nil
}

func unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// A failureRow counts the failures in a row of calls of one sort.
type failureRow struct {
	epoch    atomic.Int64 // failures counted so far
	failures int          // in a row; the lock of the breaker guards it
}

// A failureEpoch is the number of failures when a call began. Calls that are under way together and fail together have
// one cause, such as a pause of the network, and count as one failure.
type failureEpoch int64

func (row *failureRow) current() failureEpoch { return failureEpoch(row.epoch.Load()) }

func (b *breaker) current() failureEpoch { return b.decisions.current() }

// record counts the end of a call that writes.
func (b *breaker) record(begun failureEpoch, err error) { b.recordIn(&b.decisions, begun, err) }

// recordLeases is record for a call about leases; begun is from leases.
func (b *breaker) recordLeases(begun failureEpoch, err error) { b.recordIn(&b.leases, begun, err) }

func (b *breaker) recordIn(row *failureRow, begun failureEpoch, err error) {
	b.s.count.calls.Add(1)
	if err == nil {
		b.mu.Lock()
		row.failures = 0
		b.mu.Unlock()
		return
	}
	if errors.Is(err, backend.ErrDefinition) { // the store has answered, but may refuse writes
		return
	}
	b.s.count.failures.Add(1)
	b.countFailure(row, begun, err)
}

// recordRead counts the end of a call that only reads: its success does not show that the store can be written to.
func (b *breaker) recordRead(begun failureEpoch, err error) {
	if err != nil {
		b.record(begun, err)
		return
	}
	b.s.count.calls.Add(1)
}

// countFailure counts a failure, unless another one was counted since the call began.
func (b *breaker) countFailure(row *failureRow, begun failureEpoch, err error) {
	if b.s.ctx.Err() != nil {
		return // Close has ended the call
	}
	b.mu.Lock()
	if row.current() != begun {
		b.mu.Unlock()
		return
	}
	row.epoch.Add(1)
	row.failures++
	was, leases := b.away.Load(), row == &b.leases
	lost := row.failures >= b.s.o.FailureThreshold && (was == nil || was.leases && !leases)
	if lost {
		if leases {
			err = fmt.Errorf("leases: %w", err)
		}
		since := time.Now()
		if was != nil {
			since = was.since
		}
		b.away.Store(&outageState{err: b.describe(err), since: since, leases: leases})
	}
	b.mu.Unlock()
	if !lost {
		return
	}
	b.s.idleChanged()
	if was == nil {
		b.s.report(Event{Kind: EventStoreLost, Shard: b.shard.name, Err: err})
		b.s.goBackground(b.probeLoop)
	}
	b.s.wakeQueues(b.shard) // the outage policy answers waiting callers, too
}

func (b *breaker) describe(err error) error {
	if b.shard.name != "" {
		err = fmt.Errorf("%s: %w", b.shard.name, err)
	}
	return unavailable(err)
}

// probeLoop probes the shard until it is back, or has no keys any more.
func (b *breaker) probeLoop() {
	for {
		interval := float64(b.s.o.ProbeInterval) * (0.8 + 0.4*rand.Float64())
		if !b.s.sleep(time.Duration(interval)) {
			return
		}
		was := b.away.Load()
		d, key, found := b.s.probeTarget(b.shard)
		if !found {
			b.s.forgetShard(b.shard)
			if b.endOutage(was) { // its keys are in other shards now
				return
			}
			continue
		}
		err := b.probeOnce(b.s.probeOf(d, key, was.leases))
		if b.s.ctx.Err() != nil {
			return
		}
		b.s.count.calls.Add(1)
		if err != nil {
			b.s.count.failures.Add(1)
			continue
		}
		if _, _, found := b.s.probeTarget(b.shard); !found {
			b.s.forgetShard(b.shard)
		}
		if b.endOutage(was) {
			return
		}
	}
}

// probeInBackground probes the shard once and counts the result like that of a call. It is called when a caller has left
// before the answer, because that can be due to the caller or to a store that hangs: if all callers have deadlines shorter
// than CallTimeout, no call would count as failed.
func (b *breaker) probeInBackground() {
	if b.err() != nil || !b.probing.CompareAndSwap(false, true) {
		return
	}
	b.s.goBackground(func() {
		defer b.probing.Store(false)
		d, key, found := b.s.probeTarget(b.shard)
		if !found {
			return
		}
		begun := b.current()
		if err := b.probeOnce(b.s.probeOf(d, key, false)); b.s.ctx.Err() == nil {
			b.record(begun, err)
		}
	})
}

// probeOf returns a probe, which takes a permit as a limiter does, because a store that cannot be written to, or is slow,
// counts as away.
func (s *Store) probeOf(d *backend.Definition, key string, leases bool) func(context.Context) error {
	if !leases {
		return func(ctx context.Context) error {
			probe := &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{{Min: 1, Max: 1}}, Granted: make([]int64, 1)}
			err := s.backend.Decide(ctx, []*backend.Batch{probe})
			if err == nil && probe.Outcome == backend.Unreachable {
				err = reasonOf(probe.Err)
			}
			return err
		}
	}
	lending := *d
	lending.Limits = backend.Limits{Kind: backend.KindConcurrency, Permits: backend.MaxPermits}
	return func(ctx context.Context) error {
		probe := &backend.LeaseRequest{
			Definition: &lending, Key: key, ID: newLeaseID(), Permits: 1, TTL: time.Second.Microseconds(),
		}
		for _, op := range []leaseOp{acquireLease, releaseLease} {
			if err := s.callBackend(ctx, op, []*backend.LeaseRequest{probe}); err != nil {
				return err
			}
			if probe.Outcome == backend.Unreachable {
				return reasonOf(probe.Err)
			}
		}
		return nil
	}
}

// probeOnce waits until the backend returns, so that at most two probes of a shard are under way.
func (b *breaker) probeOnce(probe func(context.Context) error) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(b.s.ctx, b.s.o.CallTimeout)
	defer cancel()
	done := runIsolated("store: Backend", func() error { return probe(ctx) })
	select {
	case err := <-done:
		if err == nil && time.Since(begun) >= b.s.o.CallTimeout {
			err = errTimeout
		}
		return err
	case <-b.s.ctx.Done():
		return b.s.ctx.Err()
	}
}

// reasonOf returns err, or an error that says that the backend gave none.
func reasonOf(err error) error {
	if err == nil {
		return errors.New("the backend has given no reason")
	}
	return err
}

// probeDefinition is what probes take permits of: a window of a second that is never used up. It is not stored in any
// backend.
var probeDefinition = &backend.Definition{
	Name: "weir/probe", Version: 1, Limits: backend.Limits{Kind: backend.KindFixedWindow, Permits: backend.MaxPermits, Period: 1e6},
}

// endOutage counts the shard as there again. It returns false if more than was has failed meanwhile.
func (b *breaker) endOutage(was *outageState) bool {
	b.mu.Lock()
	if b.away.Load() != was {
		b.mu.Unlock()
		return false
	}
	b.decisions.failures, b.leases.failures = 0, 0
	b.away.Store(nil)
	b.mu.Unlock()
	b.s.report(Event{Kind: EventStoreRecovered, Shard: b.shard.name, Away: time.Since(was.since)})
	b.s.wakeQueues(b.shard)
	for _, c := range b.s.allCores() {
		c.refreshSoon() // the definition may have been changed, or the store may have lost it
	}
	return true
}
