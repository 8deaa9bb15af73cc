package pipeline_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

func TestPipeline_Describe(t *testing.T) {
	bucket := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 3}))
	keyed, err := limiter.NewPartitioned(func(k string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: k, New: func(string) (limiter.Limiter, error) { return limiter.NewUnlimited(), nil }}
	}, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, keyed.Close()) }()

	inner := weir.Must(pipeline.New("inner", timeout.New(time.Second, nil)))
	p := weir.Must(pipeline.Config{Name: "orders", Instance: "eu", Strategies: []pipeline.Strategy{
		retry.New(&retry.Options{MaxRetries: -1, Delay: -1}),
		ratelimit.New(bucket, nil),
		ratelimit.NewPartitioned(keyed, pipeline.Operation, &ratelimit.Options{Name: "PerUser"}),
		pipeline.Embed(inner),
		passThrough{},
	}}.Build())
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error {
		d := p.Describe()
		assert.Equal(t, "orders", d.Name)
		assert.Equal(t, "eu", d.Instance)
		require.Len(t, d.Strategies, 5)

		o := d.Strategies[0].Options.(retry.Options)
		assert.Equal(t, pipeline.StrategyDescription{Name: "Retry", Kind: "retry", Options: o}, d.Strategies[0])
		assert.Equal(t, -1, o.MaxRetries)
		assert.EqualValues(t, -1, o.Delay)

		limits := d.Strategies[1].Options.(ratelimit.Description)
		assert.Equal(t, "limiter.Concurrency", limits.Limiter)
		assert.Equal(t, limiter.ConcurrencyOptions{PermitLimit: 3}, limits.Limits)
		assert.Equal(t, limiter.Statistics{AvailablePermits: 2, SuccessfulLeases: 1}, d.Strategies[1].State)

		perUser := d.Strategies[2]
		assert.Equal(t, "PerUser", perUser.Name)
		assert.Equal(t, "limiter.PartitionedLimiter", perUser.Options.(ratelimit.Description).Limiter)
		assert.Equal(t, ratelimit.Partitions(1), perUser.State)

		assert.Equal(t, "inner", d.Strategies[3].Name)
		require.NotNil(t, d.Strategies[3].Pipeline)
		assert.Equal(t, time.Second, d.Strategies[3].Pipeline.Strategies[0].Options.(timeout.Description).Timeout)
		assert.Equal(t, pipeline.StrategyDescription{Kind: "pipeline_test"}, d.Strategies[4])

		_, err := json.Marshal(d)
		return err
	}))
	assert.Equal(t, pipeline.Description{Strategies: []pipeline.StrategyDescription{}}, (*pipeline.Pipeline)(nil).Describe())
}
