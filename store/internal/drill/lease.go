package drill

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// A span is the time for which a lease was held, by the machine's clock. It is a little shorter than by the store's,
// because an instance writes the beginning after the answer and the end before the release.
type span struct {
	from, to time.Time
	permits  int64
}

// spans returns the spans of all instances. A lease that was never released was held until its instance was killed or,
// if the instance was told to end, until now.
func spans(all []*process) (held []span) {
	for _, p := range all {
		end := time.Now()
		if !p.killed.IsZero() {
			end = p.killed
		}
		until := map[int64]time.Time{}
		for _, l := range p.linesOf("r") {
			until[l.args[0]] = l.at
		}
		for _, l := range p.linesOf("h") {
			if len(l.args) != 4 {
				continue // it was killed in the middle of a line
			}
			s := span{from: l.at, to: end, permits: l.args[1]}
			if to, ok := until[l.args[0]]; ok {
				s.to = to
			}
			held = append(held, s)
		}
	}
	return held
}

// maxHeld returns the largest number of permits that were held at once.
func maxHeld(all []span) (most int64) {
	type change struct {
		at time.Time
		by int64
	}
	var changes []change
	for _, s := range all {
		changes = append(changes, change{s.from, s.permits}, change{s.to, -s.permits})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	sum := int64(0)
	for _, c := range changes {
		sum += c.by
		most = max(most, sum)
	}
	return most
}

// heldWithinLimit tests that instances with leases of one to three permits never hold more than the limit, also if some
// are killed.
func heldWithinLimit(t *testing.T, s Subject) {
	for _, c := range []struct {
		name             string
		processes, kills int
		ttl              time.Duration
	}{{"two", 2, 0, time.Minute}, {"eight, of which three are killed", 8, 3, 2 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			const limit = 6
			place, name := s.Place(t), uniqueName("leases")
			limits := limitertest.Limits{Permits: limit, QueueLimit: 1000}
			options := store.LimiterOptions{LeaseTTL: c.ttl}
			all := startAll(t, c.processes, job{
				Place: place, Name: name, Kind: limitertest.Concurrency, Limits: limits, Options: options,
				Permits: []int{1, 1, 2, 3}, Goroutines: 4, Work: leaseForever,
			})
			for i := range c.processes {
				eventually(t, "each instance has its turns", func() bool { return len(all[i].linesOf("r")) >= 5 })
			}
			for _, p := range all[:c.kills] {
				p.kill()
			}
			for _, p := range all[c.kills:] {
				had := len(p.linesOf("r"))
				eventually(t, "the others go on", func() bool { return len(p.linesOf("r")) >= had+5 })
			}
			finishAll(all, true)
			held := spans(all)
			if most := maxHeld(held); most > limit {
				t.Errorf("%d were held at once, the limit is %d", most, limit)
			}
			limiter := must(build(s.store(t, place, store.Options{}), name, limitertest.Concurrency, limits, &options))(t)
			eventually(t, "everything comes back, without kills long before a lease ends", func() bool { return limiter.Statistics().AvailablePermits == limit })
			t.Logf("%d leases, %d permits at once", len(held), maxHeld(held))
		})
	}
}

// late is the longest time between the end of a lease and the grant of its permit to a waiting caller. The caller asks
// again within a second and a half, and a busy machine is slow.
const late = 15 * time.Second

var onePermit = limitertest.Limits{Permits: 1, QueueLimit: 10}

// A holder is an instance that has the only permit of a limiter, which this process shares.
type holder struct {
	*process
	limiter testLimiter
	ttl     time.Duration
	held    line
}

func newHolder(t *testing.T, s Subject, ttl time.Duration) holder {
	place, name, options := s.Place(t), uniqueName("seat"), store.LimiterOptions{LeaseTTL: ttl}
	p := startAll(t, 1, job{
		Place: place, Name: name, Kind: limitertest.Concurrency, Limits: onePermit, Options: options,
		Permits: []int{1}, Goroutines: 1, Work: leaseOnce,
	})[0]
	limiter := must(build(s.store(t, place, store.Options{}), name, limitertest.Concurrency, onePermit, &options))(t)
	return holder{p, limiter, ttl, p.await("h")}
}

// next waits for the permit in this process.
func (h holder) next(t *testing.T) limiter.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), h.ttl+patience)
	defer cancel()
	lease := must(decided(h.limiter.Acquire(ctx, 1)))(t)
	if !lease.Acquired() {
		t.Fatalf("rejected: %s", lease.Reason())
	}
	return lease
}

// isHeld expects, again and again for some time, that the permit is not granted and that check holds.
func (h holder) isHeld(t *testing.T, until time.Time, check func()) {
	t.Helper()
	for ; time.Now().Before(until); time.Sleep(20 * time.Millisecond) { // there is no event to wait for
		if lease := tryAcquire(t, h.limiter, 1); lease.Acquired() {
			t.Fatal("a permit that is held was granted")
		}
		check()
	}
}

// killedHolder kills a holder right after it has got the permit, before the lease is renewed. The permit must come back
// when the lease ends.
func killedHolder(t *testing.T, s Subject) {
	const ttl = 3 * time.Second
	h := newHolder(t, s, ttl)
	h.kill()
	if h.killed.Sub(h.held.at) > ttl/3 {
		t.Skip("the machine is so busy that the lease may have been renewed")
	}
	begun := h.linesOf("ready")[0].at // before the lease
	defer h.next(t).Release()
	now := time.Now()
	if after := now.Sub(begun); after < ttl {
		t.Errorf("the permit came back %v after its holder had been started, its TTL is %v", after, ttl)
	}
	if after := now.Sub(h.held.at); after > ttl+late {
		t.Errorf("the permit came back %v after it was given, its TTL is %v", after, ttl)
	}
}

// livingHolder tests that a holder keeps the permit for longer than the TTL, and that its release takes effect at once.
func livingHolder(t *testing.T, s Subject) {
	const ttl = 2 * time.Second
	h := newHolder(t, s, ttl)
	h.isHeld(t, h.held.at.Add(3*ttl+ttl/2), func() {})
	if len(h.linesOf("l")) > 0 {
		t.Fatal("the lease was lost")
	}
	h.send()
	h.next(t).Release()
	finishAll([]*process{h.process}, false)
}

// stoppedHolder stops a holder by SIGSTOP for longer than the TTL. Meanwhile, this process gets the permit. When the old
// holder goes on and releases its lease, the release must have no effect.
func stoppedHolder(t *testing.T, s Subject) {
	const ttl = 2 * time.Second
	h := newHolder(t, s, ttl)
	h.pause()
	lease := h.next(t)
	if len(h.linesOf("l")) > 0 {
		t.Fatal("a stopped process has written a line")
	}
	if fence, _ := store.FenceKey.From(lease); fence <= h.held.args[2] {
		t.Errorf("the new holder's fence is %d, the old one's was %d", fence, h.held.args[2])
	}
	h.resume()
	h.await("l")
	h.send()
	h.await("r")
	finishAll([]*process{h.process}, false)
	lost, _ := store.LostKey.From(lease)
	h.isHeld(t, time.Now().Add(2*ttl), func() {
		select {
		case <-lost:
			t.Fatal("the new holder has lost its lease")
		default:
		}
	})
	lease.Release()
	h.next(t).Release()
}
