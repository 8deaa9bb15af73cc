package drill

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// The longest that a permit may take beyond the end of its lease: who waits asks again after a second and a half at
// the latest, and a busy machine is slow.
const late = 4 * time.Second

var oneSeat = limitertest.Limits{Permits: 1, QueueLimit: 10}

// A holder is an instance that has the only permit, and a caller in this process that waits for it.
type holder struct {
	*process
	seats made
	ttl   time.Duration
	held  line
}

func newHolder(t *testing.T, s Subject, ttl time.Duration) holder {
	place, name, how := s.Place(t), name("seat"), store.LimiterOptions{LeaseTTL: ttl}
	p := startAll(t, job{
		Place: place, Name: name, Kind: limitertest.Concurrency, Limits: oneSeat, How: how,
		Permits: []int{1}, Goroutines: 1, Work: leaseOnce,
	})[0]
	seats := must(build(s.store(t, place, store.Options{}), name, limitertest.Concurrency, oneSeat, &how))(t)
	return holder{p, seats, ttl, p.await("h")}
}

// next waits for the permit.
func (h holder) next(t *testing.T) limiter.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), h.ttl+patience)
	defer cancel()
	lease := must(answered(h.seats.Acquire(ctx, 1)))(t)
	if !lease.Acquired() {
		t.Fatalf("rejected: %s", lease.Reason())
	}
	return lease
}

// KilledHolder kills one right after it was given the permit, before the lease was renewed.
func KilledHolder(t *testing.T, s Subject) {
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

// LivingHolder as long as it lives, and gives it back at once.
func LivingHolder(t *testing.T, s Subject) {
	const ttl = time.Second
	h := newHolder(t, s, ttl)
	end := h.held.at.Add(3*ttl + ttl/2)
	for time.Now().Before(end) {
		lease := must(answered(h.seats.TryAcquire(t.Context(), 1)))(t)
		if lease.Acquired() {
			t.Fatal("a permit that is held was granted")
		}
		time.Sleep(20 * time.Millisecond) // there is nothing to wait for: nothing is to happen
	}
	if len(h.linesOf("l")) > 0 {
		t.Fatal("the lease was lost")
	}
	h.send()
	h.next(t).Release()
	h.finish(false)
}

// StoppedHolder is the drill: SIGSTOP for longer than the TTL. Meanwhile another one has the permit, and
// what the first does with its lease when it goes on is of no effect.
func StoppedHolder(t *testing.T, s Subject) {
	const ttl = time.Second
	h := newHolder(t, s, ttl)
	h.pause()
	lease := h.next(t)
	if len(h.linesOf("l")) > 0 {
		t.Fatal("a process that is stopped speaks")
	}
	if fence, _ := store.FenceKey.From(lease); fence <= h.held.args[2] {
		t.Errorf("the new holder's fence is %d, the old one's was %d", fence, h.held.args[2])
	}
	h.resume()
	h.await("l")
	h.send()
	h.await("r")
	h.finish(false)
	lost, _ := store.LostKey.From(lease)
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		select {
		case <-lost:
			t.Fatal("the new holder has lost its lease")
		default:
		}
		if other := must(answered(h.seats.TryAcquire(t.Context(), 1)))(t); other.Acquired() {
			t.Fatal("the permit was granted twice")
		}
	}
	lease.Release()
	h.next(t).Release()
}
