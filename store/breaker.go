package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/rate"
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
// An error that wraps [backend.ErrSetup] is no matter of chance: the store counts as away at once, although calls that need
// less still succeed, and a probe repeats what has failed. Otherwise it would be counted among the successes of other calls,
// or an outage would end with the next probe and begin again.
type breaker struct {
	s       *Store
	shard   *shard                      // the one that it guards
	away    atomic.Pointer[outageState] // nil while the shard is there
	probing atomic.Bool                 // probeInBackground is running

	epoch    atomic.Int64 // failures counted so far
	mu       sync.Mutex
	failures int // in a row
}

type outageState struct {
	err   error
	since time.Time
	op    leaseOp // what has failed
}

// err returns why the shard is away, or nil.
func (b *breaker) err() error {
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

// A failureEpoch is the number of failures when a call began. Calls that are under way together and fail together have
// one cause, such as a pause of the network, and count as one failure.
type failureEpoch int64

func (b *breaker) current() failureEpoch { return failureEpoch(b.epoch.Load()) }

// record is recordOp for decisions.
func (b *breaker) record(begun failureEpoch, err error) { b.recordOp(decide, begun, err) }

// recordOp counts the end of a call that writes.
func (b *breaker) recordOp(op leaseOp, begun failureEpoch, err error) {
	b.s.count.calls.Add(1)
	if err == nil {
		b.mu.Lock()
		b.failures = 0
		b.mu.Unlock()
		return
	}
	if errors.Is(err, backend.ErrDefinition) { // the store has answered, but may refuse writes
		return
	}
	b.s.count.failures.Add(1)
	b.countFailure(op, begun, err)
}

// recordRead counts the end of a Load: its success does not show that the store can be written to.
func (b *breaker) recordRead(begun failureEpoch, err error) {
	if err != nil {
		b.recordOp(define, begun, err)
		return
	}
	b.s.count.calls.Add(1)
}

// countFailure counts a failure, unless another one was counted since the call began.
func (b *breaker) countFailure(op leaseOp, begun failureEpoch, err error) {
	if b.s.ctx.Err() != nil {
		return // Close has ended the call
	}
	b.mu.Lock()
	if b.current() != begun {
		b.mu.Unlock()
		return
	}
	b.epoch.Add(1)
	b.failures++
	setup := op != define && errors.Is(err, backend.ErrSetup)
	lost := (setup || b.failures >= b.s.o.FailureThreshold) && b.away.Load() == nil
	if lost {
		b.away.Store(&outageState{err: b.describe(err), since: time.Now(), op: op})
	}
	b.mu.Unlock()
	if !lost {
		return
	}
	b.s.idleChanged()
	b.s.report(Event{Kind: EventStoreLost, Shard: b.shard.name, Err: err})
	b.s.goBackground(b.probeLoop)
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
			b.endOutage(was) // its keys are in other shards now
			return
		}
		probe := b.s.probeDecision(d, key)
		if errors.Is(was.err, backend.ErrSetup) {
			probe = b.s.probeSetup(d, key, was.op)
		}
		err := b.probeOnce(probe)
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
		b.endOutage(was)
		return
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
		if err := b.probeOnce(b.s.probeDecision(d, key)); b.s.ctx.Err() == nil {
			b.record(begun, err)
		}
	})
}

// probeDecision takes a permit as a limiter does, because a store that cannot be written to, or is slow, counts as away.
func (s *Store) probeDecision(d *backend.Definition, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.probeRequest(ctx, d, key, backend.Request{Min: 1, Max: 1})
		return err
	}
}

func (s *Store) probeRequest(ctx context.Context, d *backend.Definition, key string, r backend.Request) (*backend.Batch, error) {
	probe := &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{r}, Granted: make([]int64, 1)}
	err := s.backend.Decide(ctx, []*backend.Batch{probe})
	if err == nil && probe.Outcome == backend.Unreachable {
		err = reasonOf(probe.Err)
	}
	return probe, err
}

// probeSetup does all that op can need: it takes a permit and gives all back, or takes a lease and does op with it. A lease
// that is not released ends after a second.
func (s *Store) probeSetup(d *backend.Definition, key string, op leaseOp) func(context.Context) error {
	if op >= leaseOps {
		return func(ctx context.Context) error {
			taken, err := s.probeRequest(ctx, d, key, backend.Request{Min: 1, Max: 1})
			if err == nil {
				// Unlike OpRefund, it leaves nothing to remember. So the key is deleted, for which a store can need another right.
				all := backend.Request{Op: backend.OpReturnBlock, Max: taken.State.Missing, Receipt: d.Receipt(&taken.State)}
				_, err = s.probeRequest(ctx, d, key, all)
			}
			return err
		}
	}
	lending := *d
	lending.Schedule = rate.Schedule{Kind: rate.Concurrency, Permits: backend.MaxPermits}
	ops := []leaseOp{acquireLease, op}
	if op == acquireLease {
		ops = ops[:1]
	}
	return func(ctx context.Context) error {
		probe := &backend.LeaseRequest{
			Definition: &lending, Key: key, ID: newLeaseID(), Permits: 1, TTL: time.Second.Microseconds(),
		}
		for _, op := range ops {
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

// probeDefinition is what probes take permits of: a bucket that is refilled each second and never used up. It is not stored in
// any backend.
var probeDefinition = &backend.Definition{
	Name: "weir/probe", Version: 1,
	Schedule: rate.Schedule{Kind: rate.TokenBucket, Permits: backend.MaxPermits, Refill: backend.MaxPermits, Period: 1e6},
}

// endOutage counts the shard as there again.
func (b *breaker) endOutage(was *outageState) {
	b.mu.Lock()
	b.failures = 0
	b.away.Store(nil)
	b.mu.Unlock()
	b.s.report(Event{Kind: EventStoreRecovered, Shard: b.shard.name, Away: time.Since(was.since)})
	b.s.wakeQueues(b.shard)
	b.s.goBackground(func() { b.s.catchUp(false) }) // the store may have lost definitions
}
