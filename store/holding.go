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

// A holding is what is asked about one lease of a concurrency limiter.
type holding struct {
	c     *core
	gone  <-chan struct{} // closed when the context of the caller ends; nil: it cannot leave
	p     *part           // that the key was in when it was made
	what  what
	h     backend.LeaseRequest // the backend has a copy, which is taken over with the answer
	tries tries
	sent  time.Time
	err   error

	counted bool // in held of its cell
	ended   atomic.Bool
	done    chan struct{}
	then    func() // if not nil: called with the answer, instead of done being closed
}

type what uint8

// In the order in which they are carried: what comes back first can be had by those who ask
// afterwards.
const (
	toRelease what = iota
	toRenew
	toHold
	whats
)

func (x *holding) about() what { return x.what }

func (x *holding) left() bool {
	if x.what != toHold {
		return false
	}
	if x.ended.Load() {
		return true
	}
	if !over(x.gone) {
		return false
	}
	if x.ended.CompareAndSwap(false, true) {
		x.err = errCallerLeft
		x.tell()
	}
	return true
}

// ids are unique among all leases of all instances.
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

func (c *core) newHolding(w what, key, id string, permits int64) *holding {
	return &holding{
		c: c, p: c.s.partOf(c.name, key), what: w,
		h: backend.LeaseRequest{Key: key, ID: id, Permits: permits, TTL: c.o.LeaseTTL.Microseconds()},
	}
}

// hold asks for a lease of n permits. waiting says that the caller will wait if it is rejected.
func (c *core) hold(ctx context.Context, key string, n int, waiting bool) (limiter.Lease, error) {
	x, err := c.askToHold(ctx, key, n, waiting)
	switch {
	case err != nil:
		return limiter.Lease{}, err
	case !x.h.OK && waiting:
		// The first lease to run out says when to look again at the latest, not when
		// permits come back: that is for those who hold them to say.
		return limiter.Rejected(lasting(x.h.NextExpiry), ""), nil
	case !x.h.OK:
		return limiter.RejectedKnowing(0, "", x.h.Definition.Permits-x.h.InUse), nil
	case n == 0:
		return limiter.Granted(0, nil), nil
	}
	return c.s.beat.begin(x), nil
}

// askToHold is ask for concurrency limiters.
func (c *core) askToHold(ctx context.Context, key string, n int, waiting bool) (*holding, error) {
	if err := c.s.partOf(c.name, key).guard.err(); err != nil {
		return nil, err
	}
	gone := ctx.Done()
	limit := time.NewTimer(c.s.o.CallTimeout)
	defer limit.Stop()
	if err := c.defined(ctx, limit); err != nil {
		return nil, err
	}
	x := c.newHolding(toHold, key, newID(), int64(n))
	x.h.Waiting = waiting
	x.gone, x.done = gone, make(chan struct{})
	c.s.sendHolding(x)
	if err := waitFor(gone, limit, x.done); err != nil {
		if x.ended.CompareAndSwap(false, true) {
			x.err = err // what is granted later is given back
		} else {
			<-x.done
		}
	}
	if x.err == errCallerLeft { //nolint:errorlint // it is never wrapped
		return nil, leftUndecided(ctx)
	}
	return x, x.err
}

func (s *Store) sendHolding(x *holding) { x.p.holds[laneOf(x.c, x.h.Key)].add(x) }

// carry is one flight: holdings that all ask the same.
func (s *Store) carry(f *flight, all []*holding) {
	p := all[0].p
	if err := s.cannotAsk(p); err != nil {
		f.lands()
		for _, x := range all {
			x.fail(err, false)
		}
		return
	}
	all = slices.Clone(all) // whoever gives the flight up may be looking at it
	slices.SortStableFunc(all, func(a, b *holding) int {
		return cmp.Or(strings.Compare(a.c.name, b.c.name), strings.Compare(a.h.Key, b.h.Key))
	})
	f.begins(p.guard.now())
	copies := make([]backend.LeaseRequest, len(all))
	holds := make([]*backend.LeaseRequest, len(all))
	sent := time.Now()
	for i, x := range all {
		copies[i], holds[i] = x.h, &copies[i]
		copies[i].Definition = x.c.inForce.Load().Definition
	}
	err := s.callFor(all[0].what, holds)
	landed := f.lands()
	if landed {
		var tally tally
		for _, h := range holds {
			tally.add(h.Outcome, h.Err)
		}
		p.landed(f.begun(), err, tally)
		s.count.decisions.Add(int64(len(all)))
	}
	for i, x := range all {
		switch {
		case !landed:
			// lostHoldings answers, and has the lease released. That may have come too early.
			if h := &copies[i]; err == nil && x.what == toHold && h.OK && h.Permits > 0 {
				s.beat.forget(x, h.Fence)
			}
		case err != nil:
			x.fail(err, true)
		case copies[i].Outcome == backend.Failed || copies[i].Outcome == backend.Unreachable:
			x.fail(why(copies[i].Err), true)
		case copies[i].Outcome == backend.OutdatedDefinition:
			s.aside(func() { s.holdAgain(x, copies[i].Version) })
		default:
			x.sawHold(&copies[i], sent)
			x.answer(copies[i], sent)
		}
	}
}

// sawHold counts what this instance holds of a key that may be waited for, so that what others
// hold is known.
func (x *holding) sawHold(h *backend.LeaseRequest, sent time.Time) {
	if x.what != toHold || h.Permits == 0 || x.c.queueing.Load().limit == 0 {
		return
	}
	ce := x.c.cells.lock(h.Key, h.OK)
	if ce == nil {
		return
	}
	defer ce.mu.Unlock()
	if h.OK {
		x.counted = true
		ce.held += h.Permits
	}
	if now := time.Now(); ce.rivals.attends(now) {
		ce.rivals.sawHolds(h.InUse-ce.held, h.Definition.Permits-h.InUse, h.OK, now.Sub(sent), now)
	}
}

func (s *Store) callFor(w what, holds []*backend.LeaseRequest) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.CallTimeout)
	defer cancel()
	switch w {
	case toRelease:
		return s.backend.Release(ctx, holds)
	case toRenew:
		return s.backend.Renew(ctx, holds)
	default:
		return s.backend.Acquire(ctx, holds)
	}
}

// holdAgain asks again by a newer definition.
func (s *Store) holdAgain(x *holding, version int64) {
	err := x.c.heardOf(version)
	pause, ok := x.tries.next(s.o.CallTimeout)
	if err == nil && !ok {
		err = errAllTheTime
	}
	if err != nil {
		x.fail(err, false)
		return
	}
	s.after(pause, func() { s.sendHolding(x) })
}

// fail answers that the store could not be asked. If it was sent, what was asked may have
// been done.
func (x *holding) fail(err error, sent bool) {
	if sent && x.what == toHold && x.h.Permits > 0 {
		x.c.s.beat.forget(x, 0)
	}
	if x.ended.CompareAndSwap(false, true) {
		x.err = unavailable(err)
		x.tell()
	}
}

// answer tells the caller, or gives back what nobody waits for any more.
func (x *holding) answer(h backend.LeaseRequest, sent time.Time) {
	if x.ended.CompareAndSwap(false, true) {
		x.h, x.sent = h, sent
		x.tell()
		return
	}
	if x.what == toHold && h.OK && h.Permits > 0 {
		x.c.s.beat.forget(x, h.Fence)
	}
}

func (x *holding) tell() {
	if x.then != nil {
		x.then()
	} else {
		close(x.done)
	}
}

// lostHoldings is what becomes of those on a flight that does not come back.
func (s *Store) lostHoldings(f *flight, all []*holding) {
	all[0].p.guard.came(f.begun(), errTimeout)
	for _, x := range all {
		x.fail(errTimeout, true)
	}
}
