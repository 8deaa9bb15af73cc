package limiter_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// books owns leases, and writes down what it hears of them.
type books struct{ heard []string }

func (b *books) Release(n int, tag int64) { b.heard = append(b.heard, noted("release", n, tag)) }
func (b *books) Refund(n int, tag int64)  { b.heard = append(b.heard, noted("refund", n, tag)) }

func noted(what string, n int, tag int64) string {
	return what + string(rune('0'+n)) + string(rune('0'+tag))
}

// exactBooks can adjust, too.
type exactBooks struct{ books }

func (b *exactBooks) Adjust(n int, tag int64, cost int) (int64, bool) {
	b.heard = append(b.heard, noted("adjust", n, tag))
	return tag + 1, cost < 5
}

func TestGrantedBy_Release(t *testing.T) {
	b := &books{}
	lease := custom.GrantedBy(b, 2, 7)
	assert.True(t, lease.Acquired())
	assert.Equal(t, 2, lease.Permits())
	limiter.ReasonKey.With(lease, "kept").Release()
	_, ok := lease.Adjust(1)
	assert.False(t, ok, "this owner cannot adjust")
	assert.Equal(t, []string{"release27"}, b.heard)
	assert.Zero(t, custom.GrantedBy(b, -1, 0).Permits())
}

func TestGrantedBy_RefundByChain(t *testing.T) {
	b := &books{}
	chain, err := limiter.Chain(granting{b}, refusing{})
	require.NoError(t, err)
	lease, err := chain.TryAcquire(context.Background(), 3)
	require.NoError(t, err)
	assert.False(t, lease.Acquired())
	assert.Equal(t, []string{"refund31"}, b.heard)
}

func TestGrantedBy_Adjust(t *testing.T) {
	b := &exactBooks{}
	lease := custom.GrantedBy(b, 2, 7)
	adjusted, ok := lease.Adjust(4)
	require.True(t, ok)
	assert.Equal(t, 4, adjusted.Permits())
	_, ok = adjusted.Adjust(9)
	assert.False(t, ok, "the owner says so")
	adjusted.Release()
	assert.Equal(t, []string{"adjust27", "adjust48", "release48"}, b.heard)
}

func TestGrantedBy_Allocations(t *testing.T) {
	b := &books{}
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = custom.GrantedBy(b, 1, 1) }))
}

// countingBooks knows what is left.
type countingBooks struct{ books }

func (*countingBooks) Remaining(n int, tag int64) (int64, bool) { return tag - int64(n), tag > 0 }

func TestLease_Remaining(t *testing.T) {
	lease := custom.GrantedBy(&countingBooks{}, 2, 7)
	left, ok := limiter.ReasonKey.With(lease, "kept").Remaining()
	assert.True(t, ok)
	assert.EqualValues(t, 5, left)
	_, ok = custom.GrantedBy(&countingBooks{}, 2, 0).Remaining()
	assert.False(t, ok)
	_, ok = custom.GrantedBy(&books{}, 2, 7).Remaining()
	assert.False(t, ok, "this owner does not know")
	_, ok = limiter.Lease{}.Remaining()
	assert.False(t, ok)
	_, ok = custom.Rejected(0, "no").Remaining()
	assert.False(t, ok)
	for _, reason := range []string{"", "no"} {
		for _, n := range []int64{0, 3, math.MaxInt32 - 1} {
			lease := limiter.ReasonKey.With(custom.RejectedKnowing(1, reason, n), "another")
			left, ok = lease.Remaining()
			assert.True(t, ok)
			assert.Equal(t, n, left)
			assert.False(t, lease.Acquired())
			assert.Zero(t, lease.Permits())
			d, _ := lease.RetryAfter()
			assert.EqualValues(t, 1, d)
		}
	}
	left, ok = custom.RejectedKnowing(1, "", math.MaxInt64).Remaining()
	assert.True(t, ok)
	assert.EqualValues(t, math.MaxInt32-1, left, "the most that a lease has room for, also where an int has 32 bits")
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = custom.RejectedKnowing(1, "", 1) }))
}

// levelBooks knows what is left, and when all is back.
type levelBooks struct{ books }

func (*levelBooks) Level(n int, tag int64) (limiter.Level, bool) {
	if tag == 0 {
		return limiter.Level{}, false
	}
	return limiter.Level{Remaining: tag - int64(n), Full: time.Second}, true
}

func TestLease_Level(t *testing.T) {
	lease := custom.GrantedBy(&levelBooks{}, 2, 7)
	for _, l := range []limiter.Lease{lease, limiter.ReasonKey.With(lease, "kept")} {
		level, ok := l.Level()
		assert.True(t, ok)
		assert.Equal(t, limiter.Level{Remaining: 5, Full: time.Second}, level)
	}
	mine, err := limiter.NewUnlimited().TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	for why, l := range map[string]limiter.Lease{
		"the owner does not know it for this lease": custom.GrantedBy(&levelBooks{}, 2, 0),
		"this owner never knows it":                 custom.GrantedBy(&books{}, 2, 7),
		"a limiter of this package":                 mine,
		"the zero lease":                            {},
		"rejected":                                  custom.RejectedKnowing(1, "no", 3),
	} {
		level, ok := l.Level()
		assert.False(t, ok, why)
		assert.Zero(t, level, why)
	}
}

var _ custom.KeyPeeker = (*limiter.PartitionedLimiter[int, string])(nil)

type granting struct{ by custom.Owner }

func (g granting) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	return custom.GrantedBy(g.by, n, 1), nil
}

func (g granting) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return g.TryAcquire(ctx, n)
}

type refusing struct{}

func (refusing) TryAcquire(context.Context, int) (limiter.Lease, error) {
	return custom.Rejected(0, "no"), nil
}

func (r refusing) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.TryAcquire(ctx, n)
}
