package drill

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/tools/testserver"
)

// rejectAfter is a limiter that calls the function and rejects.
type rejectAfter func()

func (f rejectAfter) TryAcquire(context.Context, int) (limiter.Lease, error) {
	f()
	return custom.Rejected(0, "no"), nil
}

func (f rejectAfter) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return f.TryAcquire(ctx, n)
}

// RejectedChain tests that a rejected chain gives back the permits that it has taken. The first member is a limiter at
// the place first. The last member, which rejects, is once a limiter at the place second that has too few permits left,
// and once a limiter in this process.
func RejectedChain(t *testing.T, s Subject, first, second string) {
	limits := limitertest.Limits{Permits: 10, Period: time.Hour, TokensPerPeriod: 1, Segments: 4}
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			a := must(build(s.store(t, first, store.Options{}), uniqueName("chain"), k, limits, nil))(t)
			b := must(build(s.store(t, second, store.Options{}), uniqueName("chain"), k, limits, nil))(t)
			for _, last := range []limiter.Limiter{b, rejectAfter(func() {})} {
				all := must(limiter.Chain(a, last))(t)
				held := tryAcquire(t, b, 8)
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

// LostRefund tests what happens if the store goes away before a rejected chain gives back.
func LostRefund(t *testing.T, s Subject, through string, network *testserver.Proxy) {
	var reported events
	a := s.store(t, through, store.Options{CallTimeout: 3 * time.Second, OnEvent: reported.add})
	bucket := must(build(a, uniqueName("chain"), limitertest.TokenBucket, oldLimits, nil))(t)
	taken := false
	all := must(limiter.Chain(bucket, rejectAfter(func() {
		taken = true
		network.Refuse(true)
		network.Cut()
	})))(t)
	eventually(t, "the store answers in time", func() bool {
		if lease := must(all.TryAcquire(t.Context(), 3))(t); lease.Acquired() {
			t.Error("the chain was granted")
		}
		return taken
	})
	eventually(t, "the lost refund is reported", func() bool { return len(reported.of(store.EventRefundLost)) == 1 })
	if lost := reported.of(store.EventRefundLost)[0]; lost.Permits != 3 || lost.Err == nil {
		t.Errorf("reported: %+v", lost)
	}
	network.Refuse(false)
	eventually(t, "it works again", func() bool {
		_, err := decided(bucket.TryAcquire(t.Context(), 1))
		return err == nil
	})
}
