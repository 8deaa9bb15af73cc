package reload_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
)

func TestAdaptive_KeptByReload(t *testing.T) {
	const file = "pipelines: {a: {strategies: [timeout: {timeout: 1h}, rate_limiter: {adaptive: {max_limit: 1}}]}}"
	r := follow(t)
	p := r.apply(file, nil)
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error {
		p := r.apply(strings.Replace(file, "1h", "2h", 1), nil)
		assert.ErrorIs(t, run(t, p), pipeline.ErrRejected, "its only permit is held")
		p = r.apply(strings.Replace(file, "max_limit: 1", "max_limit: 1, min_samples: 9", 1), nil)
		return run(t, p)
	}))
}

// A throttler that is not told what fails never rejects.
func TestThrottler_LearnsFailures(t *testing.T) {
	k := reload.NewKinds()
	k.RegisterHandle("nothing", func(any, error) bool { return false })
	for limiters, want := range map[string]bool{
		"throttler: {min_executions: off}":                  true,
		"throttler: {min_executions: off}, handle: nothing": false,
		"limiter: both": true,
	} {
		p := follow(t).apply("{limiters: {t: {throttler: {min_executions: off}}, u: {unlimited: {}}, both: {chain: [u, t]}}, "+
			"pipelines: {a: {strategies: [rate_limiter: {"+limiters+"}]}}}", k)
		rejected := false
		for range 300 {
			var f failing
			rejected = errors.Is(p.Execute(t.Context(), f.call), pipeline.ErrRejected) || rejected
		}
		assert.Equal(t, want, rejected, limiters)
	}
}

// The check of a pipeline asks all limiters of a file, also those in a chain, and takes nothing.
func TestRateLimiter_Peek(t *testing.T) {
	k := reload.NewKinds()
	k.RegisterKey("client", func(context.Context) string { return "ann" })
	const each = "partitioned: {key: client, each: {fixed_window: {permit_limit: 1, window: 1h}}}"
	for _, limiters := range []string{each, "limiter: both", "adaptive: {max_limit: 1, initial_limit: 1}"} {
		p := follow(t).apply("{limiters: {one: {"+each+"}, u: {unlimited: {}}, both: {chain: [u, one]}}, "+
			"pipelines: {a: {strategies: [rate_limiter: {"+limiters+"}]}}}", k)
		granted := func() bool {
			for _, s := range p.Strategies() {
				lease, err := s.(interface {
					Peek(ctx context.Context) (limiter.Lease, error)
				}).Peek(t.Context())
				require.NoError(t, err)
				return lease.Acquired()
			}
			return false
		}
		assert.True(t, granted(), limiters)
		assert.True(t, granted(), "it takes nothing")
		require.NoError(t, p.Execute(t.Context(), func(context.Context) error {
			assert.False(t, granted(), limiters)
			return nil
		}))
	}
}
