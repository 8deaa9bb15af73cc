package limiter

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

var onePermit = TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}

func rejections(key string, n int64) KeyRejections { return KeyRejections{Key: key, Rejections: n} }

// Every way in which a call can be rejected is counted, and nothing else is.
func TestTopRejected_CountsRejections(t *testing.T) {
	custom := func(string) (Limiter, error) {
		return plain{weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1}))}, nil
	}
	for name, f := range map[string]Factory[string]{
		"TokenBucket":   FactoryFor[string](onePermit),
		"FixedWindow":   FactoryFor[string](FixedWindowOptions{PermitLimit: 1, Window: time.Hour}),
		"SlidingWindow": FactoryFor[string](SlidingWindowOptions{PermitLimit: 1, Window: time.Hour, SegmentsPerWindow: 2}),
		"Concurrency":   FactoryFor[string](ConcurrencyOptions{PermitLimit: 1}),
		"custom":        custom,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPartitioned(t, f, PartitionedOptions{MaxPartitions: 2})
			ask := func(key string, n int) {
				for i := range n {
					if i%2 == 0 {
						_, _ = p.TryAcquire(t.Context(), key, 1)
					} else {
						_, _ = p.Acquire(t.Context(), key, 1)
					}
				}
			}
			ask("a", 3)
			assert.Empty(t, p.TopRejected(10), "what was before the first call")
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := p.TryAcquire(ended, "a", 1)
			require.ErrorIs(t, err, context.Canceled)
			_, err = p.TryAcquire(t.Context(), "a", -1)
			require.ErrorIs(t, err, ErrPermitCount)
			granted, err := p.TryAcquire(t.Context(), "b", 1)
			require.NoError(t, err)
			assert.True(t, granted.Acquired())
			assert.Empty(t, p.TopRejected(10), "a grant and errors do not count")
			ask("a", 5)
			ask("b", 2)
			ask("no room", 1)
			assert.Equal(t, []KeyRejections{rejections("a", 5), rejections("b", 2), rejections("no room", 1)}, p.TopRejected(10))
			assert.Equal(t, []KeyRejections{rejections("a", 5)}, p.TopRejected(1))
		})
	}
}

func TestTopRejected_CountsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := onePermit
		o.QueueLimit, o.QueueOrder = 1, NewestFirst
		p := newPartitioned(t, FactoryFor[string](o), PartitionedOptions{})
		mustAcquire(t, p, "a", 1)
		p.TopRejected(1)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = p.Acquire(t.Context(), "a", 1) })
			synctest.Wait()
		}
		assert.Equal(t, []KeyRejections{rejections("a", 1)}, p.TopRejected(1), "the newer waiter has pushed the older one out")
		time.Sleep(time.Hour) // past the minute
		wg.Wait()
		assert.Empty(t, p.TopRejected(1))
	})
}

func TestTopRejected_Allocations(t *testing.T) {
	p := newPartitioned(t, FactoryFor[string](onePermit), PartitionedOptions{})
	mustAcquire(t, p, "key", 1)
	reject := func() {
		if l, err := p.TryAcquire(t.Context(), "key", 1); err != nil || l.Acquired() {
			t.Fatal("not rejected")
		}
	}
	assertAllocs(t, 0, reject)
	p.TopRejected(1)
	assertAllocs(t, 0, reject)
}
