package limiter

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func has(p *PartitionedLimiter[int, int], key int) bool {
	hash := p.keys.hash(key)
	return p.keys.shard(hash).find(hash, key) != nil
}

// limitersByKey are limiters of one permit that comes back a minute after the lease was returned or the grant.
var limitersByKey = map[string]Factory[int]{
	"bucket":         FactoryFor[int](TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Minute}),
	"fixed window":   FactoryFor[int](FixedWindowOptions{PermitLimit: 1, Window: time.Minute}),
	"sliding window": FactoryFor[int](SlidingWindowOptions{PermitLimit: 1, Window: time.Minute, SegmentsPerWindow: 1}),
	"custom": func(int) (Limiter, error) {
		return NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Minute})
	},
}

// While a tenth of the partitions are idle, no new key is turned away, and no key in use loses its partition.
func TestMakeRoom_TenthIsIdle(t *testing.T) {
	for name, factory := range limitersByKey {
		for _, partitions := range []int{10, 100, 1000, 20_000} {
			if testing.Short() && partitions > 1000 {
				continue
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPartitioned(t, factory, PartitionedOptions{MaxPartitions: partitions, IdleTimeout: 24 * time.Hour})
					for key := range partitions {
						mustAcquire(t, p, key, 1)
					}
					l := mustReject(t, p, -1, 1)
					assert.Equal(t, ReasonPartitionLimit, l.Reason())
					time.Sleep(30 * time.Minute)
					idle := map[int]bool{}
					for _, key := range rand.Perm(partitions)[:partitions/10] {
						idle[key] = true
					}
					for key := range partitions {
						if !idle[key] {
							mustAcquire(t, p, key, 1)
						}
					}
					for i := range partitions / 10 {
						mustAcquire(t, p, partitions+i, 1)
						assert.Equal(t, partitions, p.Len())
						if i > partitions/20 { // fewer than a twentieth are idle
							break
						}
					}
					for key := range partitions {
						if !idle[key] {
							mustReject(t, p, key, 1) // a fresh limiter would grant
						}
					}
				})
			})
		}
	}
}

// Where nothing is idle, a new key looks at few partitions, and for a while the next ones look at none.
func TestMakeRoom_FloodLooksAtFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 5000
		asked := 0
		p := newPartitioned(t, func(int) (Limiter, error) {
			return slowIdler{plain{NewUnlimited()}, &asked}, nil
		}, PartitionedOptions{MaxPartitions: partitions, IdleTimeout: time.Hour})
		for key := range partitions {
			mustAcquire(t, p, key, 1)
		}
		for range 10 {
			mustReject(t, p, -1, 1)
		}
		assert.Equal(t, 2*searchAtMost, asked, "for a partition that was not used again, and for any")
		time.Sleep(time.Duration(pauseAtMost))
		mustReject(t, p, -1, 1)
		assert.Equal(t, 4*searchAtMost, asked)
	})
}

// slowIdler takes a microsecond to say that it is in use.
type slowIdler struct {
	plain
	asked *int
}

func (s slowIdler) IdleDuration() (time.Duration, bool) {
	time.Sleep(time.Microsecond)
	*s.asked++
	return 0, false
}

// A new key is not evicted before its first call has been decided.
func TestIsFull_FirstCallIsUnderWay(t *testing.T) {
	l, err := limitersByKey["bucket"](0)
	require.NoError(t, err)
	b := &l.(*TokenBucket).bucket
	assert.False(t, b.closeIfFull(-1, moment()))
	assert.True(t, b.closeIfFull(-1, moment()), "the call did not come")
}

// A factory that returns one limiter for several keys breaks the rules, but nothing else.
func TestNewPartition_SameBucket(t *testing.T) {
	one, err := FactoryFor[int](TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour})(0)
	require.NoError(t, err)
	always := func(int) (Limiter, error) { return one, nil }
	p, other := newPartitioned(t, always, PartitionedOptions{}), newPartitioned(t, always, PartitionedOptions{})
	mustAcquire(t, p, 1, 1)
	mustAcquire(t, p, 2, 1)
	mustAcquire(t, other, 1, 1)
	mustReject(t, p, 1, 1)
	mustReject(t, p, 2, 1)
	assert.Equal(t, 2, p.Len())
	assert.Equal(t, 1, other.Len())
	for _, l := range p.All() {
		assert.Same(t, one, l)
	}
	require.NoError(t, p.Close())
	_, err = other.TryAcquire(t.Context(), 1, 1)
	require.ErrorIs(t, err, ErrClosed)
}

// A key that is used in every round keeps its partition, whatever else comes, as long as others are idle.
func TestMakeRoom_UsedAgainAndAgain(t *testing.T) {
	for _, partitions := range []int{3, 50, 5000} {
		p := newPartitioned(t, FactoryFor[int](TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: 1}),
			PartitionedOptions{MaxPartitions: partitions, IdleTimeout: time.Hour})
		for key := range partitions {
			mustAcquire(t, p, key, 1)
		}
		for round := range 3 * partitions {
			mustAcquire(t, p, 1, 1)
			mustAcquire(t, p, partitions+round, 1)
			require.True(t, has(p, 1), "%d partitions, round %d", partitions, round)
		}
		s, err := p.Statistics(1)
		require.NoError(t, err)
		assert.EqualValues(t, 1+3*partitions, s.SuccessfulLeases)
		assert.Equal(t, partitions, p.Len())
	}
}

// Where all partitions were used again, the new key takes one all the same.
func TestMakeRoom_AllUsedAgain(t *testing.T) {
	for _, partitions := range []int{1, 5, 1000} {
		p := newPartitioned(t, single, PartitionedOptions{MaxPartitions: partitions, IdleTimeout: time.Hour})
		for range 2 {
			for key := range partitions {
				mustAcquire(t, p, key, 1).Release()
			}
		}
		mustAcquire(t, p, -1, 1)
		assert.Equal(t, partitions, p.Len())
		assert.True(t, has(p, -1))
	}
}
