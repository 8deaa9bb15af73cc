package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

func TestOptions_Shadow(t *testing.T) {
	var events []pipeline.Event
	var order []string
	ran := 0
	run := func(context.Context) error { ran++; return nil }
	shadow := &ratelimit.Options{Shadow: true, OnRejected: func(context.Context, ratelimit.Rejection) error {
		t.Error("OnRejected ran")
		return errBoom
	}}

	granted := granting()
	require.NoError(t, observe(ratelimit.New(granted, shadow), &events, &order).Execute(t.Context(), run))
	assert.Equal(t, 1, granted.released, "permits are held as usual")
	assert.Empty(t, events)

	f := rejecting(time.Second, "queue limit reached")
	require.NoError(t, observe(ratelimit.New(f, shadow), &events, &order).Execute(t.Context(), run))
	assert.Empty(t, f.acquired, "it waits in no queue")
	assert.Equal(t, []int{1}, f.tried)

	broken := &fake{err: limiter.ErrClosed}
	require.NoError(t, observe(ratelimit.New(broken, shadow), &events, &order).Execute(t.Context(), run))
	assert.Equal(t, 3, ran)

	assert.Equal(t, []string{"OnRateLimiterShadowRejected", "OnRateLimiterShadowError"}, order)
	for _, e := range events {
		assert.False(t, pipeline.NotCalled(e.Err), "the execution goes on")
		assert.Equal(t, pipeline.SeverityWarning, e.Severity)
		assert.Equal(t, source, e.Source)
	}
	assert.ErrorIs(t, events[0].Err, pipeline.ErrRejected)
	assert.ErrorIs(t, events[1].Err, limiter.ErrClosed)
	assert.EqualError(t, events[1].Err, "ratelimit: orders/RateLimiter: limiter: closed")
	require.NoError(t, weir.Must(pipeline.New("quiet", ratelimit.New(f, shadow))).Execute(t.Context(), run))
}

func TestOptions_ShadowDoneContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var events []pipeline.Event
	b := bucket(1, time.Hour)
	f := &fake{err: context.Canceled, answer: weir.Must(b.TryAcquire(ctx, 1))} // a limiter of the program can grant and fail
	s := ratelimit.New(f, &ratelimit.Options{Shadow: true, Permits: func(context.Context) int { cancel(); return 1 }})
	err := observe(s, &events, new([]string)).Execute(ctx, func(context.Context) error { t.Error("it ran"); return nil })
	assert.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, events)
	assert.EqualValues(t, 1, b.Statistics().AvailablePermits)
}

// A limiter that is closed says so, also if the context has ended meanwhile.
func TestStrategy_ClosedLimiter(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := ratelimit.New(&fake{err: limiter.ErrClosed}, &ratelimit.Options{Permits: func(context.Context) int { cancel(); return 1 }})
	err := weir.Must(pipeline.New("orders", s)).Execute(ctx, func(context.Context) error { t.Error("it ran"); return nil })
	require.ErrorIs(t, err, limiter.ErrClosed)
	assert.True(t, pipeline.NotCalled(err))
	assert.EqualError(t, err, "ratelimit: orders/RateLimiter: limiter: closed")
}
