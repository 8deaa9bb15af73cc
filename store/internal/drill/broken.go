package drill

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

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
