package drill

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

var (
	oldLimits = limitertest.Limits{Permits: 4, Period: time.Hour, TokensPerPeriod: 1, Segments: 4}
	newLimits = limitertest.Limits{Permits: 10, Period: time.Hour, TokensPerPeriod: 1, Segments: 4}
)

// Reconfigured runs the drills of instances that follow new limits.
func Reconfigured(t *testing.T, s Subject) {
	Wide(t, len(kinds), func() {
		t.Run("at the next call", func(t *testing.T) { newLimitsAtNextCall(t, s) })
		t.Run("keys, listening", func(t *testing.T) { newLimitsOfKeys(t, s, true) })
		t.Run("keys, refreshing", func(t *testing.T) { newLimitsOfKeys(t, s, false) })
		t.Run("overridden", func(t *testing.T) { overridden(t, s) })
		t.Run("storm", func(t *testing.T) {
			place := s.Place(t)
			Storm(t, func() (backend.Backend, func(), error) { return s.Open(place) }, 3*time.Second)
		})
	})
}

// newLimitsAtNextCall tests that the next call of another instance that does not listen follows new limits.
func newLimitsAtNextCall(t *testing.T, s Subject) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			_, both := s.twoStores(t, k, oldLimits, store.Options{NoListen: true, RefreshInterval: time.Hour})
			reconfigure := func(l testLimiter, limits limitertest.Limits) {
				if err := l.reconfigure(limits); err != nil {
					t.Fatal(err)
				}
			}
			taken := 0
			take := func(l limiter.Limiter) bool {
				ok := tryAcquire(t, l, 1).Acquired()
				if ok {
					taken++
				}
				return ok
			}
			if !take(both[0]) {
				t.Fatal("rejected")
			}
			reconfigure(both[0], newLimits)
			if k == limitertest.Concurrency && !take(both[0]) { // Reconfigure does not touch the leases; the first one by the new limits does
				t.Fatal("rejected")
			}
			for taken <= newLimits.Permits && take(both[1]) {
			}
			if taken != newLimits.Permits {
				t.Fatalf("%d permits were granted by limits of %d", taken, newLimits.Permits)
			}
			reconfigure(both[1], oldLimits)
			if take(both[0]) {
				t.Fatal("granted though more is in use than the lowered limit")
			}
		})
	}
}

// newLimitsOfKeys tests that another instance follows new limits of keys at a notice or, if it does not listen, after
// RefreshInterval.
func newLimitsOfKeys(t *testing.T, s Subject, listens bool) {
	o := store.Options{RefreshInterval: time.Hour}
	if !listens {
		o = store.Options{RefreshInterval: 200 * time.Millisecond, NoListen: true}
	}
	place, name := s.Place(t), uniqueName("keys")
	here, elsewhere := s.store(t, place, o), s.store(t, place, o)
	a := must(here.PartitionedTokenBucket(name, oldLimits.TokenBucket(), nil))(t)
	b := must(elsewhere.PartitionedTokenBucket(name, oldLimits.TokenBucket(), nil))(t)
	take := func(p limiter.Partitioned[string], key string, n int) bool {
		return must(decided(p.TryAcquire(t.Context(), key, n)))(t).Acquired()
	}
	if !take(a, "used", 4) || !take(b, "other", 1) {
		t.Fatal("rejected")
	}
	if listens {
		awaitListening(t, elsewhere)
	}
	begun := time.Now()
	if err := a.Reconfigure(newLimits.TokenBucket()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other instance has the new limits", func() bool {
		take(b, "asked", 1) // every use checks
		limits, err := b.Limits("other")
		return err == nil && limits.Permits == newLimits.Permits
	})
	t.Logf("listening %v: after %v", listens, time.Since(begun))
	if !take(b, "used", 6) || take(b, "used", 1) {
		t.Error("4 of 10 were taken")
	}
	if !take(b, "fresh", 10) || take(b, "fresh", 1) {
		t.Error("a key that is not in use has 10")
	}
}

// rollingDeployment tests that lower limits hold while instances with old limits are replaced one by one. Meanwhile, old
// instances use the limiter for the first time, and others are started again with the old limits.
func rollingDeployment(t *testing.T, s Subject) {
	const before, after = 1000, 10
	for _, processes := range []int{2, 8}[:short(2, 1)] {
		for _, k := range kinds[:3] {
			t.Run(fmt.Sprint(processes, " ", k), func(t *testing.T) {
				program := job{
					Place: s.Place(t), Name: uniqueName("rolling"), Kind: k, Permits: []int{1}, Goroutines: 2, Work: takeForever,
					Limits: limitertest.Limits{Permits: before, Period: time.Hour, TokensPerPeriod: 1, Segments: 4, QueueLimit: 100},
				}
				first := must(build(s.store(t, program.Place, store.Options{}), program.Name, k, program.Limits, nil))(t)
				acquire(t, first) // by the old limits
				newer := program
				newer.Limits.Permits = after
				var all []*process
				for i, old := range prepareAll(t, processes/2, program) {
					next := startAll(t, 1, newer)[0]
					if i == 0 {
						next.await("g") // it has set its limits
					}
					again := prepareAll(t, 1, program)[0]
					beginAll(old, again)
					old.await("o")
					again.await("o")
					all = append(all, next, old, again)
				}
				eventually(t, "all permits are taken", func() bool { return granted(all)[0] >= after-1 })
				finishAll(all, true)
				if got := granted(all)[0]; got > after-1 { // first has one of them
					t.Errorf("%d granted by limits of %d, of which one was taken", got, after)
				}
				for i, p := range all {
					if overruled := len(p.linesOf("o")) > 0; overruled != (i%3 != 0) {
						t.Errorf("instance %d, of which every third is a newer one: overruled %v", i, overruled)
					}
				}
			})
		}
	}
}

// ImpossibleVersion tests that a key whose stored state or leases have a version that no definition can have is
// unavailable, and that nothing else changes. Each of corrupt gives the state and the leases of a key such a version.
func ImpossibleVersion(t *testing.T, b backend.Backend, corrupt ...func(name, key string)) {
	s := storeOn(t, b, store.Options{CallTimeout: 5 * time.Second})
	limits := limitertest.Limits{Permits: 10, Period: time.Hour}
	for _, k := range []limitertest.Kind{limitertest.FixedWindow, limitertest.Concurrency} {
		name := uniqueName("impossible")
		p, reconfigure, err := buildPartitioned(s, name, k, limits, nil)
		if err != nil {
			t.Fatal(err)
		}
		take := func(key string, n int) limiter.Lease { return must(p.TryAcquire(t.Context(), key, n))(t) }
		version := func() int64 {
			d, _, err := b.Load(context.Background(), name)
			if err != nil || d == nil {
				t.Fatal(d, err)
			}
			return d.Version
		}
		if !take("good", 10).Acquired() || !take("bad", 1).Acquired() {
			t.Fatal("a new key is full")
		}
		before := version()
		for _, corrupt := range corrupt {
			corrupt(name, "bad")
			for range 3 {
				if reason, _ := store.OutageKey.From(take("bad", 1)); reason == nil || !strings.Contains(reason.Error(), "broken") {
					t.Errorf("%v: the broken key was answered with %v", k, reason)
				}
				if lease := take("good", 1); lease.Acquired() || lease.Reason() == limiter.ReasonUnavailable {
					t.Errorf("%v: the other key is %v, %q", k, lease.Acquired(), lease.Reason())
				}
			}
		}
		if after := version(); after != before {
			t.Errorf("%v: the definition has the version %d after %d", k, after, before)
		}
		limits := limits
		limits.Permits++
		if err := reconfigure(limits); err != nil {
			t.Fatal(err)
		}
		if first, second := take("good", 1), take("good", 1); !first.Acquired() || second.Acquired() {
			t.Errorf("%v: with one permit more, granted %v, %v", k, first.Acquired(), second.Acquired())
		}
	}
}
