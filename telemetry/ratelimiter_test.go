package telemetry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/telemetry"
)

// TestInForce_RateLimiters checks that the rate limiters of a pipeline in force are counted from 0, also the policies behind a
// strategy, and that pipelines without traffic leave room for others.
func TestInForce_RateLimiters(t *testing.T) {
	l, reader := started(t, telemetry.Options{MaxSeries: 12})
	permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	t.Cleanup(func() { _ = permits.Close() })
	l.Hooks().InForce(weir.Must(pipeline.New("orders", ratelimit.New(permits, nil), policies{"few"})))
	for i := range 10 {
		l.Hooks().InForce(weir.Must(pipeline.New(fmt.Sprint("idle", i), ratelimit.New(permits, nil))))
	}
	counted := collect(t, reader)["weir.rate_limiter.requests"]
	for _, name := range []string{"RateLimiter", "few"} {
		for _, result := range []string{"acquired", "rejected"} {
			assert.Zero(t, counted.at(t, map[string]any{"pipeline.name": "orders", "strategy.name": name, "result": result}).value)
		}
	}
	assert.LessOrEqual(t, len(counted.points), 12/3+1)
}

// policies is a strategy that asks rate limiters by itself.
type policies []string

func (p policies) RateLimiters() []string { return p }

func (p policies) Execute(ctx context.Context, next pipeline.Next) (any, error) { return next.Run(ctx) }

func TestOnMeasurement_Results(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, reader := started(t, telemetry.Options{LeaseDuration: true})
		permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}))
		p := weir.Must(pipeline.Config{Name: "orders", Listener: l, Strategies: []pipeline.Strategy{ratelimit.New(permits, nil)}}.Build())
		at := func(result string) map[string]any {
			attributes := map[string]any{"pipeline.name": "orders", "strategy.name": "RateLimiter"}
			if result != "" {
				attributes["result"] = result
			}
			return attributes
		}

		require.NoError(t, p.Execute(t.Context(), func(ctx context.Context) error {
			queued, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			done := make(chan error)
			go func() { done <- p.Execute(queued, succeed) }()
			synctest.Wait()
			require.ErrorIs(t, p.Execute(ctx, succeed), pipeline.ErrRejected)
			assert.EqualValues(t, 1, collect(t, reader)["weir.rate_limiter.lease.active"].at(t, at("")).value)
			require.ErrorIs(t, <-done, context.DeadlineExceeded)
			return nil
		}))
		require.NoError(t, permits.Close())
		require.ErrorIs(t, p.Execute(t.Context(), succeed), limiter.ErrClosed)

		metrics := collect(t, reader)
		assert.Zero(t, metrics["weir.rate_limiter.lease.active"].at(t, at("")).value)
		for _, result := range []string{"acquired", "rejected", "canceled", "failed"} {
			assert.EqualValues(t, 1, metrics["weir.rate_limiter.requests"].at(t, at(result)).value, result)
		}
		require.Len(t, metrics["weir.rate_limiter.queue.duration"].points, 1, "one request has waited")
		waited := metrics["weir.rate_limiter.queue.duration"].at(t, at("canceled"))
		assert.InDelta(t, 1, waited.value, 1e-9)
		held := metrics["weir.rate_limiter.lease.duration"].at(t, at(""))
		assert.EqualValues(t, 1, held.count)
		assert.InDelta(t, 1, held.value, 1e-9)
	})
}

// The key of a caller makes no series.
func TestOnMeasurement_PartitionKeyIsNoAttribute(t *testing.T) {
	l, reader := started(t, telemetry.Options{LeaseDuration: true})
	permits, err := limiter.NewPartitioned(func(tenant string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: tenant, New: limiter.FactoryFor[string](limiter.ConcurrencyOptions{PermitLimit: 1})}
	}, nil)
	require.NoError(t, err)
	type tenantKey struct{}
	p := weir.Must(pipeline.Config{Name: "orders", Listener: l, Strategies: []pipeline.Strategy{
		ratelimit.NewPartitioned(permits, func(ctx context.Context) string { return ctx.Value(tenantKey{}).(string) }, nil),
	}}.Build())
	for _, tenant := range []string{"tenant-a", "tenant-b"} {
		ctx := context.WithValue(t.Context(), tenantKey{}, tenant)
		require.NoError(t, p.Execute(ctx, func(ctx context.Context) error {
			require.ErrorIs(t, p.Execute(ctx, succeed), pipeline.ErrRejected)
			return nil
		}))
	}
	for name, i := range collect(t, reader) {
		for _, point := range i.points {
			for _, value := range point.attributes {
				assert.NotContains(t, value, "tenant-", name)
			}
		}
	}
	require.NoError(t, permits.Close())
}

func TestObserveLimiter(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	permits := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 3}))
	stop := l.ObserveLimiter("orders", permits)
	newer := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 5}))
	stopNewer := l.ObserveLimiter("orders", newer)
	stopOther := l.ObserveLimiter("jobs", permits)

	available := func(name string) float64 {
		return collect(t, reader)["weir.rate_limiter.permit.available"].at(t, map[string]any{"limiter.name": name}).value
	}
	assert.EqualValues(t, 5, available("orders"), "the newer one")
	assert.EqualValues(t, 3, available("jobs"))
	stopNewer()
	lease, err := permits.TryAcquire(t.Context(), 2)
	require.NoError(t, err)
	assert.EqualValues(t, 1, available("orders"))
	lease.Release()
	assert.Zero(t, collect(t, reader)["weir.rate_limiter.queue.active"].at(t, map[string]any{"limiter.name": "orders"}).value)

	stop()
	stop()
	assert.Len(t, collect(t, reader)["weir.rate_limiter.permit.available"].points, 1)
	stopOther()
	metrics := collect(t, reader)
	assert.NotContains(t, metrics, "weir.rate_limiter.permit.available")
	assert.NotContains(t, metrics, "weir.rate_limiter.queue.active")
}

// A scrape before the first rejections sees their series, so that a burst of them has a rate.
func TestRequests_RejectionsBeginAt0(t *testing.T) {
	l, reader := started(t, telemetry.Options{})
	one := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	p := weir.Must(pipeline.Config{Name: "orders", Listener: l, Strategies: []pipeline.Strategy{ratelimit.New(one, nil)}}.Build())
	require.NoError(t, p.Execute(t.Context(), succeed))
	requests := collect(t, reader)["weir.rate_limiter.requests"]
	of := func(result string) map[string]any {
		return map[string]any{"pipeline.name": "orders", "strategy.name": "RateLimiter", "result": result}
	}
	assert.EqualValues(t, 1, requests.at(t, of("acquired")).value)
	assert.Zero(t, requests.at(t, of("rejected")).value)
	assert.Len(t, requests.points, 2)
}
