package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

func TestLease_Lends(t *testing.T) {
	slots := func() limiter.Limiter {
		return weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 9}))
	}
	bucket := func() limiter.Limiter { return weir.Must(limiter.NewTokenBucket(limiter.PerSecond(9, 9))) }
	window := func() limiter.Limiter {
		return weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{PermitLimit: 9, Window: time.Second, SegmentsPerWindow: 4}))
	}
	perKey := func(l limiter.Limiter) limiter.Lease {
		keyed := weir.Must(limiter.NewPartitionedByKey(func(k string) string { return k },
			func(string) (limiter.Limiter, error) { return l, nil }, nil))
		t.Cleanup(func() { _ = keyed.Close() })
		return weir.Must(keyed.TryAcquire(t.Context(), "key", 1))
	}
	one := func(l limiter.Limiter) limiter.Lease { return weir.Must(l.TryAcquire(t.Context(), 1)) }
	for name, c := range map[string]struct {
		lease limiter.Lease
		want  bool
	}{
		"concurrency":               {one(slots()), true},
		"bucket":                    {one(bucket()), false},
		"window":                    {one(window()), false},
		"unlimited":                 {one(limiter.NewUnlimited()), false},
		"chain with slots":          {one(weir.Must(limiter.Chain(bucket(), slots(), window()))), true},
		"chain without slots":       {one(weir.Must(limiter.Chain(bucket(), window()))), false},
		"a key's slots":             {perKey(slots()), true},
		"a key's bucket":            {perKey(bucket()), false},
		"a key's chain with slots":  {perKey(weir.Must(limiter.Chain(bucket(), slots()))), true},
		"a key's chain of others":   {perKey(weir.Must(limiter.Chain(bucket(), window()))), false},
		"custom":                    {custom.Granted(1, func() {}), true},
		"custom, nothing to do":     {custom.Granted(1, nil), false},
		"custom, only a refund":     {custom.GrantedRefundable(1, nil, func() {}), false},
		"custom with metadata":      {limiter.ReasonKey.With(custom.Granted(1, func() {}), "because"), true},
		"rejected":                  {custom.Rejected(time.Second, "no"), false},
		"the zero Lease":            {limiter.Lease{}, false},
		"no permits of concurrency": {weir.Must(slots().TryAcquire(t.Context(), 0)), false},
	} {
		assert.Equal(t, c.want, c.lease.Lends(), name)
	}
	adjusted, ok := one(bucket()).Adjust(3)
	require.True(t, ok)
	assert.False(t, adjusted.Lends())
}

// A learner is a limiter whose leases learn.
type learner struct{ learned, released int }

func (l *learner) TryAcquire(context.Context, int) (limiter.Lease, error) {
	return custom.GrantedBy(l, 1, 7), nil
}

func (l *learner) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.TryAcquire(ctx, n)
}
func (l *learner) Release(int, int64)       { l.released++ }
func (l *learner) Refund(int, int64)        {}
func (l *learner) Succeeded(_ int, t int64) { l.learned += int(t) }

// Every limiter of a chain and of a key learns, and keeps its permits.
func TestLease_Succeeded(t *testing.T) {
	var first, second learner
	chain := weir.Must(limiter.Chain(&first, limiter.NewUnlimited(), weir.Must(limiter.Chain(&second))))
	keyed := weir.Must(limiter.NewPartitionedByKey(func(k string) string { return k },
		func(string) (limiter.Limiter, error) { return chain, nil }, nil))
	defer keyed.Close()
	lease := weir.Must(keyed.TryAcquire(t.Context(), "key", 1))
	lease.Succeeded()
	for _, l := range []*learner{&first, &second} {
		assert.Equal(t, learner{learned: 7}, *l)
	}
	lease.Release()
	assert.Equal(t, learner{learned: 7, released: 1}, second)
	custom.Rejected(time.Second, "").Succeeded() // does nothing
}
