package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/weirfailsafe"
	"github.com/weir-go/weir/telemetry"
)

// run executes fn through the strategies.
func run(ctx context.Context, l pipeline.Listener, fn func(context.Context) error, strategies ...pipeline.Strategy) error {
	p := weir.Must(pipeline.Config{Name: "more", Instance: "eu-1", Listener: l, Strategies: strategies}.Build())
	return p.Execute(ctx, fn)
}

// retryIn is an error with that RetryAfter.
type retryIn time.Duration

func (retryIn) Error() string                       { return "retry later" }
func (d retryIn) RetryAfter() (time.Duration, bool) { return time.Duration(d), true }

// driveRequests has requests that are measured, one of which fails.
func driveRequests(t *testing.T, l *telemetry.Telemetry) {
	t.Helper()
	h := measuredServer(t, l)
	serve(h, "GET", "/orders/7")
	serve(h, "GET", "/broken")
}

// driveBreaker opens a circuit, lets a probe through, and closes it.
func driveBreaker(ctx context.Context, t *testing.T, l pipeline.Listener) {
	t.Helper()
	breaker := circuitbreaker.New(&circuitbreaker.Options{ConsecutiveFailures: 1, BreakDuration: time.Second})
	require.ErrorIs(t, run(ctx, l, fail, breaker), errBoom)
	require.ErrorIs(t, run(ctx, l, succeed, breaker), pipeline.ErrRejected)
	time.Sleep(time.Second)
	require.NoError(t, run(ctx, l, succeed, breaker))
}

// driveOthers makes every other strategy report its events.
func driveOthers(ctx context.Context, t *testing.T, l pipeline.Listener) {
	t.Helper()
	require.NoError(t, run(ctx, l, fail, fallback.New(fallback.Value[any](nil), nil)))
	slowly := func(context.Context) error { time.Sleep(2 * time.Second); return nil }
	require.NoError(t, run(ctx, l, slowly, hedge.New(&hedge.Options{Delay: time.Second})))

	nothing := weir.Must(budget.New(&budget.Options{Ratio: -1, MinPerSecond: -1}))
	assert.ErrorIs(t, run(ctx, l, fail, retry.New(&retry.Options{Budget: nothing})), budget.ErrExhausted)

	later := func(context.Context) error { return retryIn(time.Hour) }
	assert.ErrorIs(t, run(ctx, l, later, retry.New(nil)), retry.ErrMaxRetryAfter)

	on := chaos.Options{Enabled: true, Rate: 1}
	assert.Error(t, run(ctx, l, succeed, chaos.NewFault(&chaos.FaultOptions{Options: on})))
	require.NoError(t, run(ctx, l, succeed, chaos.NewLatency(&chaos.LatencyOptions{Options: on, Latency: time.Second})))
	require.NoError(t, run(ctx, l, succeed, chaos.NewOutcome(&chaos.OutcomeOptions{Options: on, Result: chaos.Result{Value: 1}})))
	behave := func(context.Context) error { return nil }
	require.NoError(t, run(ctx, l, succeed, chaos.NewBehavior(&chaos.BehaviorOptions{Options: on, Behavior: behave})))

	full := bulkhead.New[any](1)
	require.True(t, full.TryAcquirePermit())
	bridge := weirfailsafe.New(nil, full)
	require.ErrorIs(t, run(ctx, l, succeed, bridge), pipeline.ErrRejected)
	full.ReleasePermit()
	assert.Panics(t, func() { _ = run(ctx, l, func(context.Context) error { panic("boom") }, bridge) })
}
