package drill

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// A Variant is a way of using limiters that limitertest tests.
type Variant struct {
	Name      string
	Instances int // Stores that are used in turn
	Keyed     bool
	Options   *store.LimiterOptions
	Kinds     []limitertest.Kind // nil: all
	Lacks     limitertest.Feature
}

// AtOnce is how many cases of limitertest run at once. More would overload the machine whose times they measure.
const AtOnce = 32

// Variants returns the ways that are tested on every store; with -short, only the usual one, with half of the kinds.
func Variants() []Variant {
	all := []Variant{{Name: "usual", Instances: 1}}
	if testing.Short() {
		all[0].Kinds = []limitertest.Kind{limitertest.SlidingWindow, limitertest.Concurrency}
		return all
	}
	return append(all,
		Variant{Name: "one key", Instances: 1, Keyed: true},
		// Each instance has its own queue, so queues are not tested.
		Variant{Name: "two instances in turn", Instances: 2, Lacks: limitertest.Queue | limitertest.NewestFirst},
	)
}

// Conformance runs limitertest on every kind of limiter at that place. Shared limiters lack Idle, because they do not
// know what other instances do, and Manual, because time is the server's.
func Conformance(t *testing.T, s Subject, place string, tolerance time.Duration, variants ...Variant) {
	for _, v := range variants {
		stores := []*store.Store{}
		b := s.backend(t, place)
		for range v.Instances {
			stores = append(stores, s.store(t, place, store.Options{}))
		}
		if v.Kinds == nil {
			v.Kinds = kinds
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			for _, k := range v.Kinds {
				t.Run(k.String(), func(t *testing.T) {
					t.Parallel()
					limitertest.Run(t, v.subject(b, stores, k, tolerance))
				})
			}
		})
	}
}

func (v Variant) subject(b backend.Backend, stores []*store.Store, k limitertest.Kind, tolerance time.Duration) limitertest.Subject {
	return limitertest.Subject{
		Kind:     k,
		RealTime: true, Tolerance: tolerance, Resolution: time.Microsecond,
		Lacks: limitertest.Idle | v.Lacks,
		New: func(t testing.TB, l limitertest.Limits) limiter.Limiter {
			name := uniqueName("conformance")
			all := v.instances(t, stores, name, k, l)
			awaitTick(t, b, name, tolerance/4)
			if len(all) == 1 {
				return all[0]
			}
			turns := roundRobin{all, new(atomic.Int64)}
			return testLimiter{turns, turns.reconfigure}
		},
		Reconfigure: func(l limiter.Limiter, to limitertest.Limits) error { return l.(testLimiter).reconfigure(to) },
	}
}

// startSlots bounds how many limiters are made at once. If all cases began together, the machine would be overloaded
// when the first times are measured.
var startSlots = make(chan struct{}, 4)

func (v Variant) instances(t testing.TB, stores []*store.Store, name string, k limitertest.Kind, l limitertest.Limits) (all []testLimiter) {
	startSlots <- struct{}{}
	defer func() { <-startSlots }()
	construct := build
	if v.Keyed {
		construct = buildKeyed
	}
	for _, s := range stores {
		one := must(construct(s, name, k, l, v.Options))(t)
		one.Statistics() // the schedule starts when the store first sees the limiter
		all = append(all, one)
	}
	return all
}

// awaitTick returns on a tick of the limiter. The cases expect that the schedule begins when they get the limiter, as it
// does in the process. The schedule of a shared limiter began at least a round trip earlier.
func awaitTick(t testing.TB, b backend.Backend, name string, accuracy time.Duration) {
	for {
		sent := time.Now()
		d, now, err := b.Load(context.Background(), name)
		got := time.Now()
		switch {
		case err != nil || d == nil:
			t.Fatalf("the definition of %s: %v, %v", name, d, err)
		case d.Period == 0:
			return
		case got.Sub(sent) > accuracy:
			continue
		}
		left := time.Duration(d.Period-(now-d.Anchor)%d.Period) * time.Microsecond
		tick := got.Add(left)        // at the latest; at the earliest, a round trip before
		time.Sleep(time.Until(tick)) // cases sleep, too, because they test times
		if time.Since(tick) < accuracy {
			return
		}
	}
}

// roundRobin uses several instances in turn.
type roundRobin struct {
	all  []testLimiter
	next *atomic.Int64
}

func (r roundRobin) one() testLimiter { return r.all[int(r.next.Add(1))%len(r.all)] }

func (r roundRobin) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.one().TryAcquire(ctx, n)
}

func (r roundRobin) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.one().Acquire(ctx, n)
}

func (r roundRobin) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	return r.one().Peek(ctx, n)
}

func (r roundRobin) Charge(ctx context.Context, n int) (limiter.Level, error) {
	return r.one().Charge(ctx, n)
}

func (r roundRobin) reconfigure(l limitertest.Limits) error { return r.one().reconfigure(l) }

func (r roundRobin) Statistics() limiter.Statistics {
	sum := r.all[0].Statistics()
	for _, l := range r.all[1:] {
		st := l.Statistics()
		sum.QueuedPermits += st.QueuedPermits
		sum.SuccessfulLeases += st.SuccessfulLeases
		sum.FailedLeases += st.FailedLeases
	}
	return sum
}

func (r roundRobin) Close() error {
	for _, l := range r.all {
		_ = l.Close()
	}
	return nil
}
