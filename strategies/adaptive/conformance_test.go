package adaptive_test

import (
	"testing"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/strategies/adaptive"
)

// Where the limit cannot change, the limiter is a concurrency limiter in all.
func TestLimiter_Conformance(t *testing.T) {
	limitertest.Run(t, limitertest.Subject{
		Kind: limitertest.Concurrency,
		New: func(t testing.TB, l limitertest.Limits) limiter.Limiter {
			made, err := adaptive.NewLimiter(&adaptive.LimiterOptions{
				MinLimit: l.Permits, MaxLimit: l.Permits,
				QueueLimit: l.QueueLimit, QueueOrder: l.Order,
				MinSamples: 1, MinWindow: 1, // the engine looks as often as it can
			})
			if err != nil {
				t.Fatal(err)
			}
			return made
		},
	})
}

// As long as nothing fails, a throttler grants everything.
func TestThrottler_Conformance(t *testing.T) {
	limitertest.Run(t, limitertest.Subject{
		Kind: limitertest.Unlimited,
		New: func(t testing.TB, _ limitertest.Limits) limiter.Limiter {
			made, err := adaptive.NewThrottler(nil)
			if err != nil {
				t.Fatal(err)
			}
			return made
		},
		// It is idle when it remembers nothing, which takes a Period. It draws lots, so it cannot say what it would do, and
		// it has no permits to charge.
		Lacks: limitertest.Idle | limitertest.Peek | limitertest.Charge,
	})
}
