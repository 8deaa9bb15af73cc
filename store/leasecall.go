package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A leaseCall is a request about one lease of a concurrency limiter.
type leaseCall struct {
	c          *core
	callerGone <-chan struct{} // closed when the caller's context ends; nil: it never does
	shard      *shard          // the key's, when the call was made
	kind       leaseOp
	request    backend.LeaseRequest // the backend gets a copy, which is adopted with the answer
	attempts   attempts
	sent       time.Time
	err        error

	counted  bool // in keyState.held
	answered atomic.Bool
	done     chan struct{}
	onAnswer func() // if not nil, called instead of closing done
}

type leaseOp uint8

// In the order in which they are sent: permits that come back are there for acquisitions that follow.
const (
	releaseLease leaseOp = iota
	renewLease
	acquireLease
	leaseOps
)

func (lc *leaseCall) op() leaseOp { return lc.kind }

func (lc *leaseCall) abandoned() bool {
	if lc.kind != acquireLease {
		return false
	}
	if lc.answered.Load() {
		return true
	}
	if !isClosed(lc.callerGone) {
		return false
	}
	if lc.answered.CompareAndSwap(false, true) {
		lc.err = errCallerLeft
		lc.notify()
	}
	return true
}

// newID returns instance and serial, which is unique among the leases of all instances.
var (
	instance = newInstance()
	serial   atomic.Int64
)

func newInstance() string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:]) + "-"
}

func newID() string { return instance + strconv.FormatInt(serial.Add(1), 36) }

func (c *core) newLeaseCall(w leaseOp, key, id string, permits int64) *leaseCall {
	return &leaseCall{
		c: c, shard: c.s.shardOf(c.name, key), kind: w,
		request: backend.LeaseRequest{Key: key, ID: id, Permits: permits, TTL: c.o.LeaseTTL.Microseconds()},
	}
}

// acquireLease asks for a lease of n permits. waiting says that the caller waits if it is rejected.
func (c *core) acquireLease(ctx context.Context, key string, n int, waiting bool) (limiter.Lease, error) {
	lc, err := c.askForLease(ctx, key, n, waiting)
	switch {
	case err != nil:
		return limiter.Lease{}, err
	case !lc.request.OK && waiting:
		// NextExpiry bounds when to ask again. When permits come back is up to the holders.
		return limiter.Rejected(duration(lc.request.NextExpiry), ""), nil
	case !lc.request.OK:
		return limiter.RejectedKnowing(0, "", lc.request.Definition.Permits-lc.request.InUse), nil
	case n == 0:
		return limiter.Granted(0, nil), nil
	}
	return c.s.renewer.grant(lc), nil
}

// askForLease is ask for concurrency limiters.
func (c *core) askForLease(ctx context.Context, key string, n int, waiting bool) (*leaseCall, error) {
	if err := c.s.shardOf(c.name, key).breaker.err(); err != nil {
		return nil, err
	}
	gone := ctx.Done()
	limit := time.NewTimer(c.s.o.CallTimeout)
	defer limit.Stop()
	if err := c.defined(ctx, limit); err != nil {
		return nil, err
	}
	lc := c.newLeaseCall(acquireLease, key, newID(), int64(n))
	lc.request.Waiting = waiting
	lc.callerGone, lc.done = gone, make(chan struct{})
	c.s.sendLease(lc)
	if err := waitFor(gone, limit, lc.done); err != nil {
		if lc.answered.CompareAndSwap(false, true) {
			lc.err = err // answer releases what is granted later
		} else {
			<-lc.done
		}
	}
	if lc.err == errCallerLeft { //nolint:errorlint // it is never wrapped
		return nil, undecided(ctx)
	}
	return lc, lc.err
}

func (s *Store) sendLease(lc *leaseCall) { lc.shard.leases[batcherOf(lc.c, lc.request.Key)].add(lc) }

// sendLeases makes one round trip with leaseCalls of the same kind.
func (s *Store) sendLeases(trip *roundTrip, all []*leaseCall) {
	sh := all[0].shard
	if err := s.cannotAsk(sh); err != nil {
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
	holds := make([]*backend.LeaseRequest, len(all))
	sent := time.Now()
	for i, lc := range all {
		copies[i], holds[i] = lc.request, &copies[i]
		copies[i].Definition = lc.c.inForce.Load().Definition
	}
	err := s.callBackend(all[0].kind, holds)
	landed := trip.finish()
	if landed {
		var sum outcomes
		for _, h := range holds {
			sum.add(h.Outcome, h.Err)
		}
		sh.recordRoundTrip(trip.started(), err, sum)
		s.count.decisions.Add(int64(len(all)))
	}
	for i, lc := range all {
		switch {
		case !landed:
			// leasesTimedOut has answered, and its release may have come too early
			if h := &copies[i]; err == nil && lc.kind == acquireLease && h.OK && h.Permits > 0 {
				s.renewer.releaseUnknown(lc, h.Fence)
			}
		case err != nil:
			lc.fail(err, true)
		case copies[i].Outcome == backend.Failed || copies[i].Outcome == backend.Unreachable:
			lc.fail(reasonOf(copies[i].Err), true)
		case copies[i].Outcome == backend.OutdatedDefinition:
			s.goLimited(func() { s.retryLease(lc, copies[i].Version) })
		default:
			lc.updateFairness(&copies[i], sent)
			lc.answer(copies[i], sent)
		}
	}
}

// updateFairness counts what this instance holds of a key with waiting callers, so that what others hold is known.
func (lc *leaseCall) updateFairness(h *backend.LeaseRequest, sent time.Time) {
	if lc.kind != acquireLease || h.Permits == 0 || lc.c.queueing.Load().limit == 0 {
		return
	}
	ks := lc.c.keys.lock(h.Key, h.OK)
	if ks == nil {
		return
	}
	defer ks.mu.Unlock()
	if h.OK {
		lc.counted = true
		ks.held += h.Permits
	}
	if now := time.Now(); ks.fairness.tracks(now) {
		ks.fairness.observeLeases(h.InUse-ks.held, h.Definition.Permits-h.InUse, h.OK, now.Sub(sent), now)
	}
}

func (s *Store) callBackend(w leaseOp, holds []*backend.LeaseRequest) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.CallTimeout)
	defer cancel()
	switch w {
	case releaseLease:
		return s.backend.Release(ctx, holds)
	case renewLease:
		return s.backend.Renew(ctx, holds)
	default:
		return s.backend.Acquire(ctx, holds)
	}
}

// retryLease sends the call again when the newer definition is in force.
func (s *Store) retryLease(lc *leaseCall, version int64) {
	err := lc.c.awaitVersion(version)
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

// fail answers that the store could not be asked. sent says that the request may have been carried out.
func (lc *leaseCall) fail(err error, sent bool) {
	if sent && lc.kind == acquireLease && lc.request.Permits > 0 {
		lc.c.s.renewer.releaseUnknown(lc, 0)
	}
	if lc.answered.CompareAndSwap(false, true) {
		lc.err = unavailable(err)
		lc.notify()
	}
}

// answer wakes the caller, or releases the lease if the caller has left.
func (lc *leaseCall) answer(h backend.LeaseRequest, sent time.Time) {
	if lc.answered.CompareAndSwap(false, true) {
		lc.request, lc.sent = h, sent
		lc.notify()
		return
	}
	if lc.kind == acquireLease && h.OK && h.Permits > 0 {
		lc.c.s.renewer.releaseUnknown(lc, h.Fence)
	}
}

func (lc *leaseCall) notify() {
	if lc.onAnswer != nil {
		lc.onAnswer()
	} else {
		close(lc.done)
	}
}

// leasesTimedOut answers the calls of an abandoned round trip.
func (s *Store) leasesTimedOut(trip *roundTrip, all []*leaseCall) {
	all[0].shard.breaker.record(trip.started(), errTimeout)
	for _, lc := range all {
		lc.fail(errTimeout, true)
	}
}
