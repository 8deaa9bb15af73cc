package drill

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// chargeLimit is the limit of the limiters that are charged. Nothing comes back while a test runs.
const chargeLimit = 300

func chargeLimits() limitertest.Limits {
	return limitertest.Limits{Permits: chargeLimit, Period: 1000 * time.Hour, TokensPerPeriod: 1, Segments: 10}
}

// Charges tests charges of every kind of limiter: that each returns the level right after it, and that none is lost or
// counted twice when many callers share round trips.
func Charges(t *testing.T, s Subject) {
	variants := map[string]*store.LimiterOptions{"usual": nil}
	if !testing.Short() { // what is remembered and borrowed is the same with every store
		variants["cached"], variants["blocks"] = &store.LimiterOptions{CacheRejections: true}, &store.LimiterOptions{Block: 8}
	}
	for _, k := range kinds[:3] { // a concurrency limiter cannot be charged
		for name, options := range variants {
			if k == limitertest.TokenBucket && name == "blocks" {
				continue // what was taken before a block cannot be given back
			}
			t.Run(fmt.Sprint(k, " ", name), func(t *testing.T) {
				place := s.Place(t)
				chargesAlone(t, s, place, k, options)
				chargesTogether(t, s, place, k, options)
			})
		}
	}
}

// chargesAlone expects the levels that a single caller computes.
func chargesAlone(t *testing.T, s Subject, place string, k limitertest.Kind, options *store.LimiterOptions) {
	t.Helper()
	for seed := range uint64(short(4, 1)) {
		name := uniqueName("alone")
		l := must(build(s.store(t, place, store.Options{}), name, k, chargeLimits(), options))(t)
		elsewhere := must(buildKeyed(s.store(t, place, store.Options{}), name+"-keyed", k, chargeLimits(), options))(t)
		r := rand.New(rand.NewPCG(seed, uint64(k)))
		for _, l := range []testLimiter{l, elsewhere} {
			left := int64(chargeLimit)
			for range 60 {
				n := r.IntN(100) - 50
				if r.IntN(4) == 0 {
					n = 0
				}
				level := must(l.Charge(t.Context(), n))(t)
				if left = min(left-int64(n), chargeLimit); level.Remaining != left {
					t.Fatalf("after a charge of %d, %d remain, not %d", n, level.Remaining, left)
				}
				if (level.Full > 0) != (left < chargeLimit) {
					t.Fatalf("%d remain, and all in %v", left, level.Full)
				}
				if lease := tryAcquire(t, l, 0); lease.Acquired() != (left > 0) {
					t.Fatalf("%d remain, granted is %v", left, lease.Acquired())
				}
			}
		}
	}
}

// chargesTogether has many callers at several instances take, charge, and give back some of what they have charged. In the
// end exactly what they have kept must be missing.
func chargesTogether(t *testing.T, s Subject, place string, k limitertest.Kind, options *store.LimiterOptions) {
	t.Helper()
	name := uniqueName("together")
	var kept atomic.Int64 // by all
	var all sync.WaitGroup
	for i := range uint64(3) {
		l := must(build(s.store(t, place, store.Options{}), name, k, chargeLimits(), options))(t)
		for j := range uint64(5) {
			all.Go(func() { kept.Add(takeAndCharge(t, l, rand.New(rand.NewPCG(i, j)))) })
		}
	}
	all.Wait()
	l := must(build(s.store(t, place, store.Options{}), name, k, chargeLimits(), nil))(t)
	var left int64
	if !inTime(func() bool { // blocks come back a second later
		left = must(l.Charge(t.Context(), 0))(t).Remaining
		return left == chargeLimit-kept.Load()
	}) {
		t.Errorf("%d are left though %d of %d were kept", left, kept.Load(), chargeLimit)
	}
}

// takeAndCharge returns how many permits it has kept.
func takeAndCharge(t *testing.T, l testLimiter, r *rand.Rand) (kept int64) {
	charged := 0
	for range short(100, 40) {
		n := 1 + r.IntN(5)
		switch r.IntN(3) {
		case 0:
			lease, err := decided(l.TryAcquire(t.Context(), n))
			if err != nil {
				t.Error(err)
			}
			kept += int64(lease.Permits())
			if level, ok := lease.Level(); lease.Acquired() && (!ok || level.Full <= 0 || level.Remaining >= chargeLimit) {
				t.Errorf("the level right after a grant is %+v, %v", level, ok)
			}
			continue
		case 1:
			n = -min(n, charged)
		}
		if _, err := l.Charge(t.Context(), n); err != nil {
			t.Error(err)
		}
		charged += n
	}
	return kept + int64(charged)
}
