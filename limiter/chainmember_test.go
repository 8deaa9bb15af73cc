package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

func TestChain_NamesTheMemberThatRejects(t *testing.T) {
	bucket, full := hourly(10), weir.Must(NewTokenBucket(TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}))
	take(t, full, 1)
	chain := func() *Chained { return weir.Must(Chain(bucket, full)) }
	cases := []struct {
		name  string
		chain Limiter
		want  string
	}{
		{"by index and type", chain(), "1 (limiter.TokenBucket)"},
		{"by name", weir.Must(chain().Named("requests", "tokens")), "tokens"},
		{"fewer names", weir.Must(chain().Named("requests")), "1 (limiter.TokenBucket)"},
		{"an empty name", weir.Must(chain().Named("requests", "")), "1 (limiter.TokenBucket)"},
		{"in a chain of chains", weir.Must(Chain(NewUnlimited(), weir.Must(chain().Named("", "tokens")))), "1 (limiter.Chained)/tokens"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for range 2 { // the second has the name from the first
				for _, ask := range []func(context.Context, int) (Lease, error){c.chain.TryAcquire, c.chain.Acquire, c.chain.(Peeker).Peek} {
					l, err := ask(t.Context(), 1)
					require.NoError(t, err)
					name, ok := ChainMemberKey.From(l)
					assert.True(t, ok)
					assert.Equal(t, c.want, name)
					after, known := l.RetryAfter()
					assert.True(t, known)
					assert.InDelta(t, time.Hour, after, float64(time.Minute))
					assert.Contains(t, l.String(), "rejected by limiter "+c.want+" of the chain")
				}
				l, err := c.chain.Acquire(t.Context(), 1)
				require.NoError(t, err)
				assert.Equal(t, ReasonNoPermit, l.Reason())
			}
		})
	}
	assert.EqualValues(t, 10, available(bucket), "a rejection costs nothing")
	_, ok := ChainMemberKey.From(take(t, weir.Must(Chain(bucket)), 1))
	assert.False(t, ok)

	keyed := weir.Must(NewPartitionedByKey(func(key string) string { return key }, func(string) (Limiter, error) { return full, nil }, nil))
	l, err := weir.Must(ChainPartitioned[string](keyed)).TryAcquire(t.Context(), "a", 1)
	require.NoError(t, err)
	assert.Contains(t, l.String(), "rejected by limiter 0 (limiter.PartitionedLimiter) of the chain")
}

func TestChained_NamedTooMany(t *testing.T) {
	c := weir.Must(Chain(NewUnlimited(), concurrent(1)))
	_, err := c.Named("requests", "slots", "more")
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	require.EqualError(t, err, "limiter: names must be at most 2, one for each limiter, got 3")
	_, err = c.Acquire(t.Context(), -1)
	require.NotContains(t, err.Error(), "requests", "nothing has changed")
}

// What was left is part of a rejection of the limiters of package store.
func TestChain_KeepsWhatARejectionSays(t *testing.T) {
	for _, original := range []Lease{rejected(time.Second, nil), rejected(time.Second, noPermit), ReasonKey.With(Lease{tag: 1e9, n: encodeRemaining(7)}, "busy")} {
		c := weir.Must(Chain(scripted{original}))
		for range 2 {
			l := refused(t, c, 1)
			assert.Equal(t, original.Reason(), l.Reason())
			assert.Equal(t, time.Second, retryAfterOf(l))
			want, known := original.Remaining()
			left, ok := l.Remaining()
			assert.Equal(t, want, left)
			assert.Equal(t, known, ok)
		}
	}
}

func TestChain_NamesTheMemberThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := concurrent(1)
		take(t, slots, 1)
		c := weir.Must(weir.Must(Chain(hourly(10), slots)).Named("requests", "slots"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Acquire(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.EqualError(t, err, "limiter slots of the chain: context deadline exceeded")
	})
}

// A rejection takes what the chain takes for a grant, and no more for the name.
func TestChain_RejectionAllocations(t *testing.T) {
	full := concurrent(1)
	take(t, full, 1)
	c := weir.Must(weir.Must(Chain(NewUnlimited(), full)).Named("requests", "slots"))
	assertAllocs(t, 1, func() {
		if l, err := c.TryAcquire(t.Context(), 1); err != nil || l.Acquired() {
			t.Fatal("granted")
		}
	})
}
