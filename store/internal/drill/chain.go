package drill

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// events are the events of a Store.
type events struct {
	mu  sync.Mutex
	all []store.Event
}

func (e *events) tell(event store.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) of(kinds ...store.EventKind) (found []store.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		for _, k := range kinds {
			if event.Kind == k {
				found = append(found, event)
			}
		}
	}
	return found
}

// no calls the function and rejects.
type no func()

func (f no) TryAcquire(context.Context, int) (limiter.Lease, error) {
	f()
	return limiter.Rejected(0, "no"), nil
}

func (f no) Acquire(ctx context.Context, n int) (limiter.Lease, error) { return f.TryAcquire(ctx, n) }

// RejectedChain is the drill: limiters at two places, of which the second has nothing left, and one of this process.
func RejectedChain(t *testing.T, s Subject, first, second string) {
	limits := limitertest.Limits{Permits: 10, Period: time.Hour, TokensPerPeriod: 1, Segments: 4}
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			a := must(build(s.store(t, first, store.Options{}), name("chain"), k, limits, nil))(t)
			b := must(build(s.store(t, second, store.Options{}), name("chain"), k, limits, nil))(t)
			for _, last := range []limiter.Limiter{b, no(func() {})} {
				all := must(limiter.Chain(a, last))(t)
				held := must(answered(b.TryAcquire(t.Context(), 8)))(t)
				if lease := must(all.TryAcquire(t.Context(), 4))(t); lease.Acquired() {
					t.Error("the chain was granted")
				}
				eventually(t, "everything is back at the first place", func() bool { return a.Statistics().AvailablePermits == 10 })
				held.Release()
				if _, ok := held.Adjust(0); ok {
					eventually(t, "everything is back at the second place", func() bool { return b.Statistics().AvailablePermits == 10 })
				}
			}
		})
	}
}

// LostRefund is the drill: the store is away when a chain that was rejected wants to give back.
func LostRefund(t *testing.T, s Subject, through string, network Network) {
	var told events
	a := s.store(t, through, store.Options{CallTimeout: outageTimeout, OnEvent: told.tell})
	bucket := must(build(a, name("chain"), limitertest.TokenBucket, oldLimits, nil))(t)
	all := must(limiter.Chain(bucket, no(func() {
		network.Refuse(true)
		network.Cut()
	})))(t)
	if lease := must(all.TryAcquire(t.Context(), 3))(t); lease.Acquired() {
		t.Error("the chain was granted")
	}
	eventually(t, "the lost refund is reported", func() bool { return len(told.of(store.EventRefundLost)) == 1 })
	if lost := told.of(store.EventRefundLost)[0]; lost.Permits != 3 || lost.Err == nil {
		t.Errorf("reported: %+v", lost)
	}
	network.Refuse(false)
	eventually(t, "it works again", func() bool {
		_, err := answered(bucket.TryAcquire(t.Context(), 1))
		return err == nil
	})
}
