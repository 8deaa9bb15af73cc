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
