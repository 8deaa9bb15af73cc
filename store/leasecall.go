package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store/backend"
)

// A leaseCall is a request about one lease of a concurrency limiter.
type leaseCall struct {
	pendingAnswer
	c        *core
	shard    *shard // the key's shard when the call was made
	op       leaseOp
	request  backend.LeaseRequest // with the answer, once there is one; the backend fills in a copy
	attempts attempts
	sent     time.Time
	counted  atomic.Bool // in keyState.held, from when the request is sent
}

// A leaseOp is what a leaseCall does. Each op has batchers of its own.
type leaseOp uint8

const (
	releaseLease leaseOp = iota
	renewLease
	acquireLease
	leaseOps
)

// For the breaker, the other calls are ops, too.
const (
	decide leaseOp = leaseOps + iota
	define
)

func (lc *leaseCall) order() string { return fmt.Sprintf("%q %q", lc.c.name, lc.request.Key) }

var (
	processID   = newProcessID()
	leaseSerial atomic.Int64
)

// newProcessID returns random text that no other process has, followed by a hyphen.
func newProcessID() string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:]) + "-"
}

// newLeaseID returns an ID that is unique among the leases of all instances.
func newLeaseID() string { return processID + strconv.FormatInt(leaseSerial.Add(1), 36) }

func (c *core) newLeaseCall(op leaseOp, key, id string, permits int64) *leaseCall {
	return &leaseCall{
		c: c, shard: c.s.shardOf(c.name, key), op: op,
		request: backend.LeaseRequest{Key: key, ID: id, Permits: permits, TTL: c.o.LeaseTTL.Microseconds()},
	}
}

// takeLease asks for a lease of n permits. waiting reports whether the caller waits if it is rejected.
func (c *core) takeLease(ctx context.Context, key string, n int, waiting bool) (limiter.Lease, error) {
	lc, err := c.askForLease(ctx, key, n, waiting)
	if err != nil {
		return limiter.Lease{}, err
	}
	c.s.count.decisions.Add(1)
	switch {
	case !lc.request.OK && waiting:
		// NextExpiry bounds when to ask again. When permits come back is up to the holders.
		return custom.Rejected(duration(lc.request.NextExpiry), ""), nil
	case !lc.request.OK:
		return custom.RejectedKnowing(0, "", lc.request.Definition.Permits-lc.request.InUse), nil
	case n == 0:
		return custom.Granted(0, nil), nil
	}
	return c.s.renewer.hold(lc), nil
}

// askForLease is ask for concurrency limiters. A caller that waits need not ask again after a release: that wakes the queue.
func (c *core) askForLease(ctx context.Context, key string, n int, waiting bool) (*leaseCall, error) {
	if err := c.s.shardOf(c.name, key).breaker.err(); err != nil {
		return nil, err
	}
	gone := ctx.Done()
	limit := c.s.waitLimit(ctx)
	defer limit.Stop()
	if err := c.waitDefined(ctx, limit); err != nil {
		return nil, err
	}
	ask := func() (*leaseCall, error) {
		lc := c.newLeaseCall(acquireLease, key, newLeaseID(), int64(n))
		lc.request.Waiting = waiting
		lc.callerGone, lc.done = gone, make(chan struct{})
		c.s.sendLease(lc)
		return lc, lc.await(ctx, limit)
	}
	released := c.giveBacks.underWay(key)
	if released != nil && !waiting {
		return askInOrder(released, gone, limit, ask)
	}
	return ask()
}

// tookNothing reports whether no lease was granted.
func (lc *leaseCall) tookNothing() bool { return !lc.request.OK || lc.request.Permits == 0 }

func (s *Store) sendLease(lc *leaseCall) {
	lc.shard.leases[lc.op][batcherOf(lc.c, lc.request.Key)].add(lc)
}

// sendLeases makes one round trip with leaseCalls of the same op.
func (s *Store) sendLeases(trip *roundTrip, all []*leaseCall) {
	sh := all[0].shard
	if err := s.checkShard(sh); err != nil {
		trip.finish()
		for _, lc := range all {
			lc.fail(err, false)
		}
		return
	}
	all = slices.Clone(all) // leasesTimedOut may be reading it
	slices.SortStableFunc(all, func(a, b *leaseCall) int {
		return cmp.Or(strings.Compare(a.c.name, b.c.name), strings.Compare(a.request.Key, b.request.Key))
	})
	trip.start(sh.breaker.current())
	copies := make([]backend.LeaseRequest, len(all))
	requests := make([]*backend.LeaseRequest, len(all))
	sent := time.Now()
	for i, lc := range all {
		lc.count()
		copies[i], requests[i] = lc.request, &copies[i]
		copies[i].Definition = lc.c.keeper.InForce().Definition
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.o.CallTimeout)
	err := s.callBackend(ctx, all[0].op, requests)
	cancel()
	inTime := trip.finish()
	if inTime {
		var o outcomes
		for _, r := range requests {
			o.add(r.Outcome, r.Err)
		}
		sh.breaker.recordOp(all[0].op, trip.epoch(), o.result(err))
	}
	for i, lc := range all {
		switch {
		case !inTime && err == nil: // leasesTimedOut has answered, and its release may have come too early
			lc.releaseGranted(requests[i])
		case !inTime:
		case err != nil:
			lc.fail(err, true)
		default:
			lc.settle(requests[i], sent)
		}
	}
}

// settle processes the backend's answer.
func (lc *leaseCall) settle(r *backend.LeaseRequest, sent time.Time) {
	switch r.Outcome {
	case backend.Failed, backend.Unreachable:
		lc.fail(reasonOf(r.Err), true)
	case backend.OutdatedDefinition:
		lc.uncount()
		lc.c.s.goLeaseRetry(func() { lc.retry(r.Version) })
	default:
		lc.updateFairness(r, sent)
		if lc.claim() {
			lc.request, lc.sent = *r, sent
			lc.notify()
		} else {
			lc.releaseGranted(r)
		}
	}
}

// releaseGranted releases a lease that was granted to a caller that has left.
func (lc *leaseCall) releaseGranted(r *backend.LeaseRequest) {
	if lc.op == acquireLease && r.OK && r.Permits > 0 {
		lc.c.s.renewer.releaseUnknown(lc, r.Fence)
	}
}

// count counts what this instance holds, or may hold when the store answers, of a key with a queue, so that it knows what
// its rivals hold.
func (lc *leaseCall) count() {
	if lc.op != acquireLease || lc.request.Permits == 0 || lc.c.limits().QueueLimit == 0 {
		return
	}
	if ks := lc.c.keys.lock(lc.request.Key, true); ks != nil {
		ks.held += lc.request.Permits
		lc.counted.Store(true)
		ks.mu.Unlock()
	}
}

func (lc *leaseCall) uncount() {
	if lc.counted.Swap(false) {
		lc.c.uncountLease(lc.request.Key, lc.request.Permits)
	}
}

// uncountLease is called when a lease has ended, or was not granted.
func (c *core) uncountLease(key string, n int64) {
	if ks := c.keys.lock(key, false); ks != nil {
		ks.held = max(ks.held-n, 0)
		ks.mu.Unlock()
	}
}

// updateFairness passes the answer to an acquisition to the fairness of a key with a queue.
func (lc *leaseCall) updateFairness(r *backend.LeaseRequest, sent time.Time) {
	if !r.OK {
		lc.uncount()
	}
	if lc.op != acquireLease || r.Permits == 0 || lc.c.limits().QueueLimit == 0 {
		return
	}
	ks := lc.c.keys.lock(r.Key, false)
	if ks == nil {
		return
	}
	defer ks.mu.Unlock()
	now := time.Now()
	ks.turnsOfKey().Lease(r.OK, r.InUse-ks.held, r.Definition.Permits-r.InUse, now.Sub(sent), now)
}

func (s *Store) callBackend(ctx context.Context, op leaseOp, requests []*backend.LeaseRequest) error {
	switch op {
	case releaseLease:
		return s.backend.Release(ctx, requests)
	case renewLease:
		return s.backend.Renew(ctx, requests)
	default:
		return s.backend.Acquire(ctx, requests)
	}
}

// retry sends the call again when the newer definition is in force.
func (lc *leaseCall) retry(version int64) {
	s := lc.c.s
	err := lc.c.keeper.Await(version)
	pause, ok := lc.attempts.next(s.o.CallTimeout)
	if err == nil && !ok {
		err = errReconfiguring
	}
	if err != nil {
		lc.fail(err, false)
		return
	}
	s.afterPause(pause, func() { s.sendLease(lc) })
}

// fail answers that the store could not be asked. uncertain reports whether the request may have been carried out.
func (lc *leaseCall) fail(err error, uncertain bool) {
	if uncertain && lc.op == acquireLease && lc.request.Permits > 0 {
		lc.c.s.renewer.releaseUnknown(lc, 0)
	}
	lc.failWith(unavailable(err))
}

// leasesTimedOut answers the calls of a round trip that took too long.
func (s *Store) leasesTimedOut(trip *roundTrip, all []*leaseCall) {
	all[0].shard.breaker.recordOp(all[0].op, trip.epoch(), errTimeout)
	for _, lc := range all {
		lc.fail(errTimeout, true)
	}
}
