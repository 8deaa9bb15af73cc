package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
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
		"custom":                    {limiter.Granted(1, func() {}), true},
		"custom, nothing to do":     {limiter.Granted(1, nil), false},
		"custom, only a refund":     {limiter.GrantedRefundable(1, nil, func() {}), false},
		"custom with metadata":      {limiter.ReasonKey.With(limiter.Granted(1, func() {}), "because"), true},
		"rejected":                  {limiter.Rejected(time.Second, "no"), false},
		"the zero Lease":            {limiter.Lease{}, false},
		"no permits of concurrency": {weir.Must(slots().TryAcquire(t.Context(), 0)), false},
	} {
		assert.Equal(t, c.want, c.lease.Lends(), name)
	}
	adjusted, ok := one(bucket()).Adjust(3)
	require.True(t, ok)
	assert.False(t, adjusted.Lends())
}
