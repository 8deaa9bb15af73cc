package drill

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// overridden tests that limits which one instance overrides are in force at the next call of another instance that does
// not listen, and are undone at the end although the first instance does not run any more: by the other one, or by one
// that starts later.
func overridden(t *testing.T, s Subject) {
	t.Run("token bucket", func(t *testing.T) {
		overrideEnds(t, s, limitertest.TokenBucket)
	})
	t.Run("fixed window", func(t *testing.T) {
		overrideEnds(t, s, limitertest.FixedWindow)
	})
	t.Run("sliding window", func(t *testing.T) {
		overrideEnds(t, s, limitertest.SlidingWindow)
	})
	t.Run("concurrency", func(t *testing.T) {
		overrideEnds(t, s, limitertest.Concurrency)
	})
}

func overrideEnds(t *testing.T, s Subject, k limitertest.Kind) {
	oldOptions, newOptions := oldLimits.Of(k), newLimits.Of(k)
	t.Parallel()
	place, name := s.Place(t), uniqueName("overridden")
	o := store.Options{NoListen: true, RefreshInterval: time.Hour}
	instance := func() (*store.Store, *store.Limiter) {
		made := s.store(t, place, o)
		return made, must(made.Limiter(name, oldOptions, nil))(t)
	}
	clock := s.backend(t, place)
	_, other := instance()
	override := func(another bool) (until int64) {
		made, l := instance()
		tryAcquire(t, l, 0)
		if another {
			tryAcquire(t, other, 0)
		}
		until = serverTime(t, clock) + (4 * time.Second).Microseconds()
		want := store.Override{Options: newOptions, Until: time.UnixMicro(until), By: "ann", Reason: `a "sale" ☃`}
		if err := l.Override(want); err != nil {
			t.Fatal(err)
		}
		tryAcquire(t, l, 0) // Override does not touch the leases; the first one by the new limits does
		if err := made.Close(); err != nil {
			t.Fatal(err)
		}
		return until
	}

	until := override(true)
	eventually(t, "the other instance has learned of the override", func() bool {
		tryAcquire(t, other, 1).Release()
		got, ok := other.Overridden()
		return ok && got.By == "ann" && got.Reason == `a "sale" ☃` && got.Options == newOptions && got.Configured == oldOptions
	})
	if serverTime(t, clock) < until && other.Limits() != newOptions.Limits() {
		t.Errorf("the limits are %+v", other.Limits())
	}
	eventually(t, "the other instance ends it", func() bool {
		_, ok := other.Overridden()
		return !ok
	})
	ended := serverTime(t, clock)
	if ended < until {
		t.Errorf("the override has ended %d µs early", until-ended)
	}
	t.Logf("ended after %v", time.Duration(ended-until)*time.Microsecond)
	if other.Limits() != oldOptions.Limits() {
		t.Errorf("the limits are %+v", other.Limits())
	}

	if err := other.Close(); err != nil { // from now on no limiter knows of it
		t.Fatal(err)
	}
	until = override(false)
	eventually(t, "the time is over", func() bool { return serverTime(t, clock) >= until })
	if d, _, err := clock.Load(t.Context(), name); err != nil || d == nil || !strings.Contains(d.Terms, "override") {
		t.Fatalf("the store has ended the override by itself: %+v, %v", d, err)
	}
	_, late := instance()
	tryAcquire(t, late, 0)
	if d, _, err := clock.Load(t.Context(), name); err != nil || strings.Contains(d.Terms, "override") || late.Limits() != oldOptions.Limits() {
		t.Errorf("the next instance has not ended the override: %+v, %+v, %v", d, late.Limits(), err)
	}
}

// killedOverrider kills the process that has overridden the limits. Another one ends the override in time.
func killedOverrider(t *testing.T, s Subject) {
	place, name := s.Place(t), uniqueName("overrider")
	other := must(s.store(t, place, store.Options{}).TokenBucket(name, oldLimits.TokenBucket(), nil))(t)
	tryAcquire(t, other, 1)
	clock := s.backend(t, place)
	p := prepareAll(t, 1, job{
		Place: place, Name: name, Kind: limitertest.TokenBucket, Limits: oldLimits, Goroutines: 1, Work: override,
		Until: serverTime(t, clock) + (4 * time.Second).Microseconds(),
	})[0]
	p.send()
	until := p.await("v").args[0]
	p.kill()
	if lease, err := other.TryAcquire(t.Context(), newLimits.Permits-1); !lease.Acquired() && serverTime(t, clock) < until {
		t.Errorf("the override is not in force: %v", err)
	}
	eventually(t, "the override ends", func() bool {
		_, ok := other.Overridden()
		return !ok
	})
	if ended := serverTime(t, clock); ended < until {
		t.Errorf("the override has ended %d µs early", until-ended)
	}
	if got := other.Limits(); got != oldLimits.TokenBucket().Limits() {
		t.Errorf("the limits are %+v", got)
	}
}

// override is the work of that name.
func (w *worker) override(ctx context.Context, _ int) error {
	l, err := w.store.TokenBucket(w.Name, w.Limits.TokenBucket(), nil)
	if err != nil {
		return err
	}
	err = l.Override(store.Override{
		Options: newLimits.TokenBucket(), Until: time.UnixMicro(w.Until), By: "ann", Reason: "a sale",
	})
	if err != nil {
		return err
	}
	write("v %d", w.Until)
	<-ctx.Done()
	return nil
}
