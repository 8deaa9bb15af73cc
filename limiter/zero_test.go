package limiter_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/limitertest"
)

// A limiter that was not made with its constructor says so, whatever it is asked, and holds no lock when it does.
func TestLimiters_ZeroValue(t *testing.T) {
	for name, l := range map[string]limiter.Limiter{
		"TokenBucket": &limiter.TokenBucket{}, "FixedWindow": &limiter.FixedWindow{},
		"SlidingWindow": &limiter.SlidingWindow{}, "Concurrency": &limiter.Concurrency{},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				for _, ask := range []func(context.Context, int) (limiter.Lease, error){l.TryAcquire, l.Acquire} {
					_, err := ask(t.Context(), 1)
					require.ErrorIs(t, err, limiter.ErrPermitCount)
					require.ErrorContains(t, err, "make it with its constructor")
					_, err = ask(t.Context(), 0)
					require.ErrorContains(t, err, "make it with its constructor")
				}
				assert.Zero(t, available(l).AvailablePermits)
				_, _ = l.(custom.Idler).IdleDuration()
				require.ErrorIs(t, reconfigure(l, limitertest.Limits{
					Permits: 1, TokensPerPeriod: 1, Segments: 1, Period: 1, QueueLimit: 1,
				}), limiter.ErrInvalidOptions)
				require.NoError(t, l.(io.Closer).Close())
			}
		})
	}
}
