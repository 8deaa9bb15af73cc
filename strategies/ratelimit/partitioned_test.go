package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// tenants is a partitioned limiter that knows who may.
type tenants map[string]*fake

func (m tenants) TryAcquire(ctx context.Context, who string, n int) (limiter.Lease, error) {
	return m[who].TryAcquire(ctx, n)
}

func (m tenants) Acquire(ctx context.Context, who string, n int) (limiter.Lease, error) {
	return m[who].Acquire(ctx, n)
}

func TestNewPartitioned(t *testing.T) {
	type tenant struct{}
	who := func(ctx context.Context) string { return ctx.Value(tenant{}).(string) }
	m := tenants{"good": granting(), "bad": rejecting(time.Second, "")}
	for _, shadow := range []bool{false, true} {
		s := ratelimit.NewPartitioned(m, who, &ratelimit.Options{Name: "Tenant", Shadow: shadow})
		assert.Nil(t, s.Limiter())
		p := weir.Must(pipeline.New("orders", s))
		require.NoError(t, p.Execute(context.WithValue(t.Context(), tenant{}, "good"), nothing))
		err := p.Execute(context.WithValue(t.Context(), tenant{}, "bad"), nothing)
		assert.Equal(t, !shadow, errors.Is(err, pipeline.ErrRejected))
		require.NoError(t, p.Close())
	}
	assert.Equal(t, []int{1}, m["bad"].acquired)
	assert.Equal(t, []int{1}, m["bad"].tried)
}

// Peek asks with the cost and the key of an execution, and takes nothing.
func TestStrategy_Peek(t *testing.T) {
	type key struct{}
	perUser := weir.Must(limiter.NewPartitionedByKey(func(user string) string { return user },
		limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 2, Window: time.Hour}), nil))
	defer func() { _ = perUser.Close() }()
	cost := 2
	s := ratelimit.NewPartitioned(perUser, func(ctx context.Context) string { user, _ := ctx.Value(key{}).(string); return user },
		&ratelimit.Options{Permits: func(context.Context) int { return cost }})
	p := weir.Must(pipeline.New("orders", s))
	ann := context.WithValue(t.Context(), key{}, "ann")
	for range 3 {
		lease, err := s.Peek(ann)
		require.NoError(t, err)
		assert.True(t, lease.Acquired())
	}
	require.NoError(t, p.Execute(ann, nothing))
	lease, err := s.Peek(ann)
	require.NoError(t, err)
	assert.False(t, lease.Acquired())
	lease, err = s.Peek(t.Context())
	require.NoError(t, err)
	assert.True(t, lease.Acquired(), "another key")
	cost = -1
	_, err = s.Peek(ann)
	require.ErrorIs(t, err, limiter.ErrPermitCount)

	bucket := weir.Must(limiter.NewTokenBucket(limiter.PerSecond(1, 1)))
	defer func() { _ = bucket.Close() }()
	lease, err = ratelimit.New(bucket, nil).Peek(t.Context())
	require.NoError(t, err)
	assert.True(t, lease.Acquired())
	for _, s := range []*ratelimit.Strategy{
		ratelimit.New(granting(), nil),
		ratelimit.NewPartitioned(noPeek{}, func(context.Context) string { return "" }, nil),
	} {
		_, err = s.Peek(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}

// noPeek is a partitioned limiter without a Peek.
type noPeek struct{ limiter.Partitioned[string] }
