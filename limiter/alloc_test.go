package limiter

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
)

// plenty are options under which nothing is ever rejected.
var (
	plentyTokens  = TokenBucketOptions{TokenLimit: math.MaxInt32, TokensPerPeriod: 1 << 20, ReplenishmentPeriod: time.Millisecond}
	plentyFixed   = FixedWindowOptions{PermitLimit: math.MaxInt32, Window: time.Second}
	plentySliding = SlidingWindowOptions{PermitLimit: math.MaxInt32, Window: time.Second, SegmentsPerWindow: 10}
)

// assertAllocs runs f often enough for an average to be what it says.
func assertAllocs(t *testing.T, want float64, f func()) {
	t.Helper()
	f() // what is made once does not count
	assert.Equal(t, want, testing.AllocsPerRun(1000, f))
}

func TestAcquire_Allocations(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, l := range map[string]Limiter{
		"TokenBucket":   weir.Must(NewTokenBucket(plentyTokens)),
		"FixedWindow":   weir.Must(NewFixedWindow(plentyFixed)),
		"SlidingWindow": weir.Must(NewSlidingWindow(plentySliding)),
		"Concurrency":   weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 10})),
		"Unlimited":     NewUnlimited(),
	} {
		t.Run(name, func(t *testing.T) {
			assertAllocs(t, 0, func() {
				for _, n := range []int{0, 1, 3} {
					a, err := l.TryAcquire(ctx, n)
					b, err2 := l.Acquire(ctx, n)
					if err != nil || err2 != nil || !a.Acquired() || !b.Acquired() {
						t.Fatal("not granted")
					}
					a.Release()
					b.Release()
				}
			})
		})
	}
}

func TestAcquire_RejectionAllocations(t *testing.T) {
	for name, l := range map[string]Limiter{
		"TokenBucket":   weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour})),
		"FixedWindow":   weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Hour})),
		"SlidingWindow": weir.Must(NewSlidingWindow(SlidingWindowOptions{PermitLimit: 1, Window: time.Hour, SegmentsPerWindow: 10})),
		"Concurrency":   weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1})),
	} {
		t.Run(name, func(t *testing.T) {
			if l, err := l.TryAcquire(t.Context(), 1); err != nil || !l.Acquired() {
				t.Fatal("not granted")
			}
			assertAllocs(t, 0, func() {
				a, _ := l.TryAcquire(t.Context(), 1)
				b, _ := l.Acquire(t.Context(), 1)
				if a.Acquired() || b.Acquired() || b.Reason() != ReasonNoPermit {
					t.Fatal("not rejected")
				}
			})
		})
	}
}

func TestPartitioned_KnownKeyAllocations(t *testing.T) {
	p := newPartitioned(t, FactoryFor[string](plentyTokens), PartitionedOptions{MaxPartitions: 10})
	assertAllocs(t, 0, func() {
		if l, err := p.TryAcquire(t.Context(), "key", 1); err != nil || !l.Acquired() {
			t.Fatal("not granted")
		}
	})
}

func TestChain_Allocations(t *testing.T) {
	c := weir.Must(Chain(
		weir.Must(NewTokenBucket(plentyTokens)),
		weir.Must(NewSlidingWindow(plentySliding)),
		weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1})),
	))
	assertAllocs(t, 1, func() {
		l, err := c.TryAcquire(t.Context(), 1)
		if err != nil || !l.Acquired() {
			t.Fatal("not granted")
		}
		l.Release()
	})
}

// Handing a permit over takes the channel on which the waiter is told.
func TestAcquire_WaiterAllocations(t *testing.T) {
	l := weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1, QueueLimit: 2}))
	turns := make(chan struct{})
	defer close(turns)
	acquire := func() Lease {
		lease, err := l.Acquire(t.Context(), 1)
		if err != nil || !lease.Acquired() {
			t.Error("not granted")
		}
		return lease
	}
	go func() {
		for range turns {
			acquire().Release()
			turns <- struct{}{}
		}
	}()
	assertAllocs(t, 1, func() {
		held := acquire()
		turns <- struct{}{}
		for l.Statistics().QueuedPermits == 0 {
			runtime.Gosched() // let it queue up
		}
		held.Release()
		<-turns
	})
}

// What a million keys cost depends on it: an entry of eight words, and at most two places of two words.
func TestBucket_Size(t *testing.T) {
	const n = 50_000
	before := heap()
	p := newPartitioned(t, FactoryFor[string](TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}), PartitionedOptions{})
	for i := range n {
		mustAcquire(t, p, fmt.Sprintf("user-%d", i), 1)
	}
	perKey := float64(heap()-before) / n
	assert.LessOrEqual(t, perKey, 116.0, "bytes a key, with its string")
	assert.Equal(t, n, p.Len())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestCharge_Allocations(t *testing.T) {
	shared := newPartitioned(t, FactoryFor[string](plentyTokens), PartitionedOptions{MaxPartitions: 10})
	windows := newPartitioned(t, FactoryFor[string](plentySliding), PartitionedOptions{MaxPartitions: 10})
	for name, charge := range map[string]func(n int) (Level, error){
		"TokenBucket":            chargeOf(weir.Must(NewTokenBucket(plentyTokens))),
		"FixedWindow":            chargeOf(weir.Must(NewFixedWindow(plentyFixed))),
		"SlidingWindow":          chargeOf(weir.Must(NewSlidingWindow(plentySliding))),
		"Unlimited":              chargeOf(NewUnlimited().(Charger)),
		"Chained":                chargeOf(weir.Must(Chain(NewUnlimited(), weir.Must(NewTokenBucket(plentyTokens))))),
		"TokenBucket of a key":   func(n int) (Level, error) { return shared.Charge(t.Context(), "key", n) },
		"SlidingWindow of a key": func(n int) (Level, error) { return windows.Charge(t.Context(), "key", n) },
	} {
		t.Run(name, func(t *testing.T) {
			assertAllocs(t, 0, func() {
				for _, n := range []int{3, 0, -2} {
					if _, err := charge(n); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

func chargeOf(c Charger) func(n int) (Level, error) {
	return func(n int) (Level, error) { return c.Charge(context.Background(), n) }
}
