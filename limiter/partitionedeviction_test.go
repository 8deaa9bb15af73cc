package limiter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The least recently used go first: exactly in that order where there are few partitions.
func TestEviction_FewInOrderOfLastUse(t *testing.T) {
	for name, factory := range map[string]Factory[int]{
		"in use for a moment": TokenBucketFactory[int](TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: 1}),
		"pinned":              single,
	} {
		for _, bubble := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				run := func(t *testing.T) {
					p := newPartitioned(t, factory, PartitionedOptions{MaxPartitions: sampleAll, IdleTimeout: time.Hour})
					use := func(key int) {
						t.Helper()
						mustAcquire(t, p, key, 1).Release()
						if bubble {
							time.Sleep(time.Nanosecond)
						}
					}
					for key := range sampleAll {
						use(key)
					}
					for i := range sampleAll {
						use(i * 37 % sampleAll)
					}
					for i := range sampleAll / 2 {
						oldest := i * 37 % sampleAll
						require.True(t, has(p, oldest))
						use(1000 + i)
						require.False(t, has(p, oldest), "%d has made room", i)
						assert.Equal(t, sampleAll, p.Len())
					}
				}
				if bubble {
					synctest.Test(t, run)
				} else {
					run(t)
				}
			})
		}
	}
}

func has(p *PartitionedLimiter[int, int], key int) bool {
	for k := range p.All() {
		if k == key {
			return true
		}
	}
	return false
}

// Among many a new key hardly ever takes the place of one that was used since most others were.
func TestEviction_ManyRoughlyInOrderOfLastUse(t *testing.T) {
	const partitions = 4000
	p := newPartitioned(t, single, PartitionedOptions{MaxPartitions: partitions, IdleTimeout: time.Hour})
	for key := range partitions {
		mustAcquire(t, p, key, 1).Release()
	}
	for key := range partitions / 2 {
		mustAcquire(t, p, key, 1).Release()
	}
	for key := range partitions / 4 {
		mustAcquire(t, p, partitions+key, 1).Release()
	}
	used := 0
	for key := range p.All() {
		if key < partitions/2 {
			used++
		}
	}
	assert.Greater(t, used, partitions/2*9/10)
	assert.LessOrEqual(t, p.Len(), partitions)
	assert.Greater(t, p.Len(), partitions-sampleEvict)
}

// Calls for keys that are there stop writing to what all processors share.
func TestEviction_KnownKeysLeaveRecencyAlone(t *testing.T) {
	p := newPartitioned(t, single, PartitionedOptions{MaxPartitions: 1000, IdleTimeout: time.Hour})
	use := func() {
		for key := range 200 {
			mustAcquire(t, p, key, 1).Release()
		}
	}
	use()
	use()
	turn := p.recency.Load()
	for range 10 {
		use()
	}
	assert.Equal(t, turn, p.recency.Load())
	mustAcquire(t, p, 1000, 1).Release()
	assert.NotEqual(t, turn, p.recency.Load())
}

// The only idle one of many partitions is found, and evicted only if its place is needed.
func TestEviction_FindsOnlyIdlePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 5000
		p := newPartitioned(t, single, PartitionedOptions{MaxPartitions: partitions, IdleTimeout: time.Hour})
		held := make([]Lease, partitions)
		for key := range partitions {
			held[key] = mustAcquire(t, p, key, 1)
		}
		for i := range 50 {
			l := mustReject(t, p, -1, 1)
			assert.Equal(t, ReasonPartitionLimit, l.Reason())
			free := i * 97 % partitions
			held[free].Release()
			held[free] = mustAcquire(t, p, partitions+i, 1)
			require.False(t, has(p, free))
		}
	})
}

// Where nothing is idle, looking further is bounded in time, and so is how often it is done.
func TestEviction_FloodLooksAtFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 5000
		asked := 0
		p := newPartitioned(t, func(int) (Limiter, error) {
			return slowIdler{plain{NewUnlimited()}, &asked}, nil
		}, PartitionedOptions{MaxPartitions: partitions, IdleTimeout: time.Hour})
		for key := range partitions {
			mustAcquire(t, p, key, 1)
		}
		began := time.Now()
		mustReject(t, p, -1, 1)
		first := asked
		assert.LessOrEqual(t, first, sampleInUse+100+sampleAll, "at 1 µs each")
		assert.Less(t, time.Since(began), 2*scanAtMost)
		for range 10 {
			mustReject(t, p, -1, 1)
		}
		assert.Equal(t, first+10*sampleInUse, asked)
		time.Sleep(time.Second)
		mustReject(t, p, -1, 1)
		assert.Greater(t, asked, first+11*sampleInUse+50, "further again")
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

// A factory that returns one limiter for several keys breaks the rules, but nothing else.
func TestEviction_FactoryReturnsSameBucket(t *testing.T) {
	one, err := TokenBucketFactory[int](TokenBucketOptions{TokenLimit: 3, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour})(0)
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
	require.NoError(t, p.Close())
	_, err = other.TryAcquire(t.Context(), 1, 1)
	require.ErrorIs(t, err, ErrClosed)
}
