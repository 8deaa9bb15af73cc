package store

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// Keys of the metadata on the leases of shared concurrency limiters.
var (
	// FenceKey has a fencing token: it grows with every lease of the same key. A service that is written to under a lease
	// can refuse every write with a token smaller than the largest it has seen, so that an instance that was suspended
	// for longer than LeaseTTL does no harm when it continues.
	FenceKey = limiter.NewMetadataKey[int64]("LEASE_FENCE")
	// LostKey has a channel that is closed if the lease ends before it is released. After [Store.Close], when no lease is renewed,
	// it stays open.
	LostKey = limiter.NewMetadataKey[<-chan struct{}]("LEASE_LOST")
)

// processID is random text that no other process has.
var processID = rand.Text()

var leaseSerial atomic.Int64

// newLeaseID returns an ID that is unique among the leases of all instances.
func newLeaseID() string { return processID + "-" + strconv.FormatInt(leaseSerial.Add(1), 36) }

// takeLease asks for a lease of n permits. waiting reports whether the caller waits if it is rejected.
func (r *remote) takeLease(ctx context.Context, key string, n int, waiting bool) (limiter.Lease, error) {
	q, err := r.askForLease(ctx, key, n, waiting)
	if err != nil {
		return limiter.Lease{}, err
	}
	r.c.s.count.decisions.Add(1)
	switch reply := q.Reply; {
	case !reply.OK && waiting:
		// NextExpiry bounds when to ask again. When permits come back is up to the holders.
		return custom.Rejected(saturate.Micros(reply.NextExpiry), ""), nil
	case !reply.OK:
		return custom.RejectedKnowing(0, "", reply.Definition.Permits-reply.InUse), nil
	case n == 0:
		return custom.Granted(0, nil), nil
	}
	return r.hold(q), nil
}

// askForLease is ask for concurrency limiters. A caller that waits is woken by a release, and so need not ask twice.
func (r *remote) askForLease(ctx context.Context, key string, n int, waiting bool) (*calls.Call, error) {
	r.c.keeper.RefreshIfDue(time.Now())
	return r.c.s.calls.Ask(ctx, func() *calls.Call {
		return calls.NewLease(r, calls.Acquire, backend.LeaseRequest{
			Key: key, ID: newLeaseID(), Permits: int64(n), TTL: r.c.o.LeaseTTL.Microseconds(), Waiting: waiting,
		})
	})
}

// Answered counts what this instance holds of a key with a queue, and passes to its turns what its rivals hold.
func (r *remote) Answered(q *calls.Call) {
	reply := q.Reply
	if reply.Permits == 0 || r.c.limits().QueueLimit == 0 {
		return
	}
	ks := r.c.keys.lock(q.Key, true)
	if ks == nil {
		return
	}
	defer ks.mu.Unlock()
	if q.Counted = reply.OK; reply.OK {
		ks.held += reply.Permits // until the heldLease ends
	}
	now := time.Now()
	ks.useTurns().Lease(reply.OK, reply.InUse-ks.held, reply.Definition.Permits-reply.InUse, now.Sub(q.Sent), now)
}

// A heldLease owns a lease of a concurrency limiter. While the lease is held it is renewed, and a release that fails is sent
// again, until the lease has ended or the Store is closed.
type heldLease struct {
	c       *core
	key     string
	id      string
	n       int64
	counted bool          // in keyState.held
	lost    chan struct{} // closed if the lease ends before it is released

	mu         sync.Mutex
	fence      int64     // 0: not known, because the answer was lost
	validUntil time.Time // the lease does not end before this moment
	lastSent   time.Time // when it was last sent to be renewed or released
	released   bool
	timer      *time.Timer // calls check; nil once the lease has ended
}

// errLeaseGone and errRenewedLate are why a lease was lost.
var (
	errLeaseGone   = errors.New("the store has no such lease any more")
	errRenewedLate = errors.New("the lease could not be renewed in time")
)

// hold returns the lease that the store has granted.
func (r *remote) hold(q *calls.Call) limiter.Lease {
	l := r.newHeldLease(q, q.Reply.Fence, q.Sent)
	lease := LostKey.With(custom.GrantedBy(l, int(l.n), 0), l.lost)
	return FenceKey.With(lease, l.fence)
}

func (r *remote) newHeldLease(q *calls.Call, fence int64, since time.Time) *heldLease {
	l := &heldLease{
		c: r.c, key: q.Key, id: q.Lease.ID, n: q.Lease.Permits, counted: q.Counted, lost: make(chan struct{}),
		fence: fence, validUntil: since.Add(r.c.o.LeaseTTL), lastSent: since,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.nextCheck(time.Now()), l.check)
	return l
}

// interval is the time between two attempts to renew or release a lease.
func (l *heldLease) interval() time.Duration { return l.c.o.LeaseTTL / 6 }

// due is when the lease is to be renewed: at the common moment nearest to a third of the TTL after the last time. A release is sent
// again earlier.
func (l *heldLease) due() time.Time {
	due := l.lastSent.Add(l.interval())
	if renewed := l.validUntil.Add(-l.c.o.LeaseTTL); !l.released && due.Before(renewed.Add(3*l.interval()/2)) {
		due = renewed.Add(3 * l.interval() / 2)
	}
	return due
}

// nextCheck returns the time until the lease is due, or ends. The leases of a Store are due at common moments, so that they are
// sent together.
func (l *heldLease) nextCheck(now time.Time) time.Duration {
	wait := l.due().Sub(now)
	if past := now.Add(wait).Sub(l.c.s.begun) % l.interval(); past > 0 {
		wait += l.interval() - past
	}
	return max(min(wait, l.validUntil.Sub(now)), 1)
}

// check renews the lease, or releases it, if that is due, and ends it if it has expired.
func (l *heldLease) check() {
	now := time.Now()
	l.mu.Lock()
	if l.timer == nil || l.c.s.background.Err() != nil {
		l.mu.Unlock()
		return
	}
	expired, due, released := !now.Before(l.validUntil), !now.Before(l.due()), l.released
	if due {
		l.lastSent = now
	}
	l.timer.Reset(l.nextCheck(now))
	l.mu.Unlock()
	switch {
	case expired && l.end() && !released:
		l.reportLost(errRenewedLate)
	case !expired && due:
		l.send(released)
	}
}

// send sends the lease to be released or renewed.
func (l *heldLease) send(release bool) {
	op := calls.Renew
	if release {
		op = calls.Release
	}
	q := calls.NewLease(&l.c.remote, op, backend.LeaseRequest{
		Key: l.key, ID: l.id, Permits: l.n, TTL: l.c.o.LeaseTTL.Microseconds(), Fence: l.fence,
	})
	q.OnAnswer = func() {
		if q.Err == nil {
			l.answered(q)
		}
	}
	l.c.s.calls.Send(q)
}

// answered processes the store's answer. If there is none, check tries again.
func (l *heldLease) answered(q *calls.Call) {
	l.mu.Lock()
	lost := q.Op == calls.Renew && !q.Reply.OK && !l.released
	if until := q.Sent.Add(l.c.o.LeaseTTL); q.Reply.OK && q.Op == calls.Renew && until.After(l.validUntil) {
		l.validUntil = until
	}
	l.mu.Unlock()
	if lost && l.end() {
		l.reportLost(errLeaseGone)
	}
	if q.Op == calls.Release {
		if q.Reply.OK || l.fence != 0 { // else the acquisition, whose answer was lost, may reach the store later
			l.end()
		}
		l.c.keys.freed(l.key)
	}
}

// end reports whether the lease had not ended before.
func (l *heldLease) end() bool {
	l.mu.Lock()
	timer := l.timer
	l.timer = nil
	l.mu.Unlock()
	if timer == nil {
		return false
	}
	timer.Stop()
	if l.counted {
		if ks := l.c.keys.lock(l.key, false); ks != nil {
			ks.held -= l.n
			ks.mu.Unlock()
		}
	}
	return true
}

func (l *heldLease) reportLost(err error) {
	close(l.lost)
	l.c.s.report(Event{Kind: EventLeaseLost, Limiter: l.c.name, Key: l.key, Permits: l.n, Err: err})
}

// Release releases the lease in the background.
func (l *heldLease) Release(int, int64) {
	l.mu.Lock()
	done := l.released || l.timer == nil
	l.released, l.lastSent = true, time.Now()
	l.mu.Unlock()
	if !done {
		l.send(true)
	}
}

// Refund is Release, and the grant does not count.
func (l *heldLease) Refund(n int, tag int64) {
	l.c.count.granted.Add(-1)
	l.Release(n, tag)
}
