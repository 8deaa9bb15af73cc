package drill

import (
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

var (
	oldLimits = limitertest.Limits{Permits: 4, Period: time.Hour, TokensPerPeriod: 1, Segments: 4}
	newLimits = limitertest.Limits{Permits: 10, Period: time.Hour, TokensPerPeriod: 1, Segments: 4}
)

// NewLimits tests that new limits are seen at the next call of another instance, with and without notices.
func NewLimits(t *testing.T, s Subject) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			_, both := s.twoStores(t, k, oldLimits, store.Options{NoListen: true, RefreshInterval: time.Hour})
			held := 0
			take := func() {
				if lease := must(answered(both[0].TryAcquire(t.Context(), 1)))(t); !lease.Acquired() {
					t.Fatal("rejected")
				}
				held++
			}
			take()
			if err := both[0].reconfigure(newLimits); err != nil {
				t.Fatal(err)
			}
			if k == limitertest.Concurrency {
				take() // Reconfigure does not touch the leases; the first one by the new limits does
			}
			for range newLimits.Permits - held {
				lease := must(answered(both[1].TryAcquire(t.Context(), 1)))(t)
				if !lease.Acquired() {
					t.Fatal("rejected by the old limits")
				}
			}
			if lease := must(answered(both[1].TryAcquire(t.Context(), 1)))(t); lease.Acquired() {
				t.Fatal("granted beyond the new limits")
			}
			checkReconfigure(t, both, oldLimits)
		})
	}
}

// checkReconfigure has the limits lowered by one instance, and the other one follow them at once.
func checkReconfigure(t *testing.T, both [2]made, lower limitertest.Limits) {
	t.Helper()
	if err := both[1].reconfigure(lower); err != nil {
		t.Fatal(err)
	}
	if lease := must(answered(both[0].TryAcquire(t.Context(), 1)))(t); lease.Acquired() {
		t.Fatal("granted though more is in use than the lowered limit")
	}
}

// NewLimitsOfKeys at a notice, or after RefreshInterval.
func NewLimitsOfKeys(t *testing.T, s Subject, listens bool) {
	o := store.Options{RefreshInterval: time.Hour}
	if !listens {
		o = store.Options{RefreshInterval: 200 * time.Millisecond, NoListen: true}
	}
	place, name := s.Place(t), name("keys")
	here, elsewhere := s.store(t, place, o), s.store(t, place, o)
	a := must(here.PartitionedTokenBucket(name, oldLimits.TokenBucket(), nil))(t)
	b := must(elsewhere.PartitionedTokenBucket(name, oldLimits.TokenBucket(), nil))(t)
	take := func(p limiter.Partitioned[string], key string, n int) bool {
		return must(answered(p.TryAcquire(t.Context(), key, n)))(t).Acquired()
	}
	if !take(a, "used", 4) || !take(b, "other", 1) {
		t.Fatal("rejected")
	}
	awaitListening(t, elsewhere, listens)
	begun := time.Now()
	if err := a.Reconfigure(newLimits.TokenBucket()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other instance sees the new limits", func() bool {
		take(b, "asked", 1) // every use looks
		return b.Options().TokenLimit == newLimits.Permits
	})
	t.Logf("listening %v: seen after %v", listens, time.Since(begun))
	if !take(b, "used", 6) || take(b, "used", 1) {
		t.Error("4 of 10 were taken")
	}
	if !take(b, "fresh", 10) || take(b, "fresh", 1) {
		t.Error("a key that is not in use has 10")
	}
}
