package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

var kinds = []limitertest.Kind{
	limitertest.Concurrency, limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket, limitertest.Calendar,
}

// shared is the interface of all limiters of package store.
type shared interface {
	limiter.Limiter
	limiter.Peeker
	limiter.Charger
	limiter.StatisticsProvider
	Close() error
}

// made is a limiter and a function that gives it new limits.
type made struct {
	shared
	reconfigure func(limitertest.Limits) error
}

func build(t testing.TB, s *store.Store, k limitertest.Kind, l limitertest.Limits, how *store.LimiterOptions) made {
	by, err := s.Limiter("it", l.Of(k), how)
	return made{must(by, err)(t), func(l limitertest.Limits) error { return by.Reconfigure(l.Of(k)) }}
}

// oneKey is one key of a partitioned limiter.
type oneKey struct {
	partitioned
	statistics func(key string) limiter.Statistics
	close      func() error
	last       *atomic.Pointer[limiter.Statistics] // of the key: the limiter does not keep them
}

// partitioned is what oneKey needs of a partitioned limiter.
type partitioned interface {
	limiter.Partitioned[string]
	custom.KeyPeeker
	limiter.PartitionedCharger[string]
}

func buildKeyed(t testing.TB, s *store.Store, k limitertest.Kind, l limitertest.Limits, how *store.LimiterOptions) made {
	p := must(s.Partitioned("it", l.Of(k), how))(t)
	statistics := func(key string) limiter.Statistics {
		st, _ := p.Statistics(key)
		return st
	}
	return made{oneKey{p, statistics, p.Close, new(atomic.Pointer[limiter.Statistics])}, func(l limitertest.Limits) error {
		err := p.Reconfigure(l.Of(k))
		statistics(theKey) // a key is converted when it is used
		return err
	}}
}

const theKey = "a key"

func (o oneKey) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return o.partitioned.TryAcquire(ctx, theKey, n)
}

func (o oneKey) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return o.partitioned.Acquire(ctx, theKey, n)
}

func (o oneKey) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	return o.PeekKey(ctx, theKey, n)
}

func (o oneKey) Charge(ctx context.Context, n int) (limiter.Level, error) {
	return o.partitioned.Charge(ctx, theKey, n)
}

func (o oneKey) Statistics() limiter.Statistics {
	if last := o.last.Load(); last != nil {
		return *last
	}
	return o.statistics(theKey)
}

func (o oneKey) Close() error {
	last := o.Statistics()
	last.QueuedPermits = 0
	o.last.Store(&last)
	return o.close()
}

// inTurn makes each call at the next of several instances.
type inTurn struct {
	all  []made
	next *atomic.Int64
}

func (i inTurn) one() made { return i.all[int(i.next.Add(1))%len(i.all)] }

func (i inTurn) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return i.one().TryAcquire(ctx, n)
}

func (i inTurn) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return i.one().Acquire(ctx, n)
}

func (i inTurn) Peek(ctx context.Context, n int) (limiter.Lease, error) { return i.one().Peek(ctx, n) }

func (i inTurn) Charge(ctx context.Context, n int) (limiter.Level, error) {
	return i.one().Charge(ctx, n)
}

func (i inTurn) Statistics() limiter.Statistics {
	all := i.all[0].Statistics()
	for _, l := range i.all[1:] {
		st := l.Statistics()
		all.QueuedPermits += st.QueuedPermits
		all.SuccessfulLeases += st.SuccessfulLeases
		all.FailedLeases += st.FailedLeases
	}
	return all
}

func (i inTurn) Close() error {
	for _, l := range i.all {
		_ = l.Close()
	}
	return nil
}

type builder func(testing.TB, *store.Store, limitertest.Kind, limitertest.Limits, *store.LimiterOptions) made

func conformance(t *testing.T, build builder, how func(limitertest.Kind) *store.LimiterOptions, lacks limitertest.Feature, instances int, only ...limitertest.Kind) {
	if len(only) == 0 {
		only = kinds
	}
	for _, k := range only {
		if k == limitertest.Calendar && testing.Short() {
			continue // its days take long under the race detector
		}
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			limitertest.Run(t, limitertest.Subject{
				Kind: k,
				New: func(t testing.TB, l limitertest.Limits) limiter.Limiter {
					memory := storetest.NewMemory()
					var all []made
					for range instances {
						all = append(all, build(t, newStore(t, memory, store.Options{RefreshInterval: refresh(k)}), k, l, how(k)))
						all[len(all)-1].Statistics() // the grid begins when the store hears of the limiter
					}
					if instances == 1 {
						return all[0]
					}
					turns := inTurn{all, new(atomic.Int64)}
					return made{turns, func(l limitertest.Limits) error {
						err := turns.one().reconfigure(l)
						synctest.Wait() // the others hear of it
						return err
					}}
				},
				Reconfigure: func(l limiter.Limiter, to limitertest.Limits) error { return l.(made).reconfigure(to) },
				Resolution:  time.Microsecond,
				Lacks:       limitertest.Idle | lacks,
			})
		})
	}
}

// refresh is rare for a calendar, whose tests wait for days.
func refresh(k limitertest.Kind) time.Duration {
	if k == limitertest.Calendar {
		return 12 * time.Hour
	}
	return 0
}

func usual(limitertest.Kind) *store.LimiterOptions { return nil }

func TestConformance(t *testing.T) { conformance(t, build, usual, 0, 1) }

func TestConformanceOfOneKey(t *testing.T) { conformance(t, buildKeyed, usual, 0, 1) }

// Refunds go to the block, which a refill of a bucket ends. What was taken before a block of a bucket was borrowed is not
// given back by a Charge.
func TestConformanceOfBlocks(t *testing.T) {
	lent := func(limitertest.Kind) *store.LimiterOptions { return &store.LimiterOptions{Block: 8} }
	conformance(t, build, lent, 0, 1, limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.Calendar)
	conformance(t, build, lent, limitertest.Refund|limitertest.Charge, 1, limitertest.TokenBucket)
}

// Each instance has its own queue; therefore, queues are not tested.
func TestConformanceOfTwoInstancesInTurn(t *testing.T) {
	conformance(t, build, usual, limitertest.Queue|limitertest.NewestFirst, 2)
}
