package drill

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// A way is a way to use a limiter that limitertest tests.
type way struct {
	name      string
	kinds     []limitertest.Kind
	instances int // Stores that are used in turn
	keyed     bool
	options   store.LimiterOptions
	lacks     limitertest.Feature
	stores    bool // it is about what package store does, whatever the Backend
}

func ways() []way {
	windows := []limitertest.Kind{limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.Calendar}
	all := append([]limitertest.Kind{limitertest.Concurrency, limitertest.TokenBucket}, windows...)
	lent := store.LimiterOptions{Block: 8}
	return []way{
		{name: "usual", kinds: all, instances: 1},
		{name: "one key", kinds: all, instances: 1, keyed: true, stores: true},
		// Refunds go to the block, which a refill of a bucket ends. What was taken before a block of a bucket was borrowed is
		// not given back by a Charge.
		{name: "blocks of windows", kinds: windows, instances: 1, options: lent, stores: true},
		{
			name: "blocks of a bucket", kinds: []limitertest.Kind{limitertest.TokenBucket}, instances: 1, options: lent, stores: true,
			lacks: limitertest.Refund | limitertest.Charge,
		},
		// Each instance has its own queue, so queues are not tested.
		{name: "two instances in turn", kinds: all, instances: 2, lacks: limitertest.Queue | limitertest.NewestFirst},
	}
}

// Conformance runs limitertest, in bubbles, on limiters of every kind. open is called inside each case's bubble, and the clock of
// the Backend that it returns must be package time's: then no time passes while a server is asked, and what it answers is exact. A
// connection that listens would keep the time from passing at all, so on a server o has NoListen.
func Conformance(t *testing.T, o store.Options, open func(t testing.TB) backend.Backend) {
	for _, w := range ways() {
		if o.NoListen && (w.stores || w.instances > 1 && testing.Short()) {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			for _, k := range w.kinds {
				if testing.Short() && k == limitertest.Calendar {
					continue // its days take long under the race detector
				}
				t.Run(k.String(), func(t *testing.T) {
					t.Parallel()
					limitertest.Run(t, w.subject(k, o, open))
				})
			}
		})
	}
}

// future is later than the time of any server, so that none forgets a state too early.
var future = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

func (w way) subject(k limitertest.Kind, o store.Options, open func(t testing.TB) backend.Backend) limitertest.Subject {
	construct := build
	if w.keyed {
		construct = buildKeyed
	}
	if k == limitertest.Calendar { // the cases wait for days
		o.RefreshInterval = 12 * time.Hour
		if o.NoListen {
			w.lacks |= limitertest.Queue | limitertest.NewestFirst // a server would be asked ten thousand times
		}
	}
	return limitertest.Subject{
		Kind: k, Resolution: time.Microsecond, Lacks: limitertest.Idle | w.lacks,
		New: func(t testing.TB, l limitertest.Limits) limiter.Limiter {
			time.Sleep(time.Until(future))
			b, name := open(t), uniqueName("conformance")
			var all inTurn
			for range w.instances {
				all.instances = append(all.instances, must(construct(storeOn(t, b, o), name, k, l, &w.options))(t))
				all.Statistics() // the grid begins when the store hears of the limiter
			}
			if w.instances == 1 {
				return all.instances[0]
			}
			return testLimiter{&all, func(l limitertest.Limits) error {
				err := all.one().reconfigure(l)
				synctest.Wait()
				all.Statistics() // the others hear of it
				return err
			}}
		},
		Reconfigure: func(l limiter.Limiter, to limitertest.Limits) error { return l.(testLimiter).reconfigure(to) },
	}
}

// inTurn makes each call at the next of several instances.
type inTurn struct {
	instances []testLimiter
	next      atomic.Int64
}

func (i *inTurn) one() testLimiter { return i.instances[int(i.next.Add(1))%len(i.instances)] }

func (i *inTurn) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return i.one().TryAcquire(ctx, n)
}

func (i *inTurn) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return i.one().Acquire(ctx, n)
}

func (i *inTurn) Peek(ctx context.Context, n int) (limiter.Lease, error) { return i.one().Peek(ctx, n) }

func (i *inTurn) Charge(ctx context.Context, n int) (limiter.Level, error) {
	return i.one().Charge(ctx, n)
}

// Statistics adds up all but the available permits, which are the same ones everywhere.
func (i *inTurn) Statistics() limiter.Statistics {
	var sum limiter.Statistics
	for _, l := range i.instances {
		s := l.Statistics()
		sum.AvailablePermits = s.AvailablePermits
		sum.QueuedPermits += s.QueuedPermits
		sum.SuccessfulLeases += s.SuccessfulLeases
		sum.FailedLeases += s.FailedLeases
	}
	return sum
}

func (i *inTurn) Close() error {
	var errs []error
	for _, l := range i.instances {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
