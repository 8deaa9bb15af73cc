package store_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/storetest"
)

// A seeded is a Memory at some distance, whose Store has the random numbers of a seed.
type seeded struct {
	*storetest.Memory
	seed     uint64
	distance time.Duration // different for each instance, so that no two ask at the same moment

	mu   sync.Mutex
	made []string
}

func (s *seeded) MakeSource(name, key string) *deterministic.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, name+"/"+key)
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q", name, key)
	return &deterministic.Source{Rand: rand.New(rand.NewPCG(s.seed, h.Sum64()))}
}

func (s *seeded) Decide(ctx context.Context, batches []*backend.Batch) error {
	time.Sleep(s.distance)
	return s.Memory.Decide(ctx, batches)
}

// Instances that compete wait for random times, which a simulation must be able to repeat.
func TestStore_RandomOfBackend(t *testing.T) {
	grants := func(seed uint64) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			m, begun := storetest.NewMemory(), time.Now()
			var mu sync.Mutex
			var callers sync.WaitGroup
			for i := range 2 {
				b := &seeded{Memory: m, seed: seed + uint64(i), distance: time.Duration(i+1) * 7 * time.Microsecond}
				l, err := newStore(t, b, store.Options{}).PartitionedTokenBucket("it", limiter.TokenBucketOptions{
					TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: 100 * time.Millisecond, QueueLimit: 10,
				}, nil)
				require.NoError(t, err)
				for range 10 {
					time.Sleep(time.Millisecond) // callers that came at the same moment would be in any order
					callers.Go(func() {
						lease, err := l.Acquire(context.Background(), "k", 1)
						assert.NoError(t, err)
						assert.True(t, lease.Acquired())
						mu.Lock()
						defer mu.Unlock()
						all = append(all, time.Since(begun))
					})
				}
				defer func() { assert.Equal(t, []string{"it/k"}, b.made) }()
			}
			callers.Wait()
		})
		return all
	}
	first := grants(1)
	assert.Len(t, first, 20)
	for range 5 {
		assert.Equal(t, first, grants(1))
	}
	assert.NotEqual(t, first, grants(2))
}
