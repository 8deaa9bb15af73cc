package limiter_test

import (
	"testing"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
)

// kinds are those with limits.
var kinds = []limitertest.Kind{
	limitertest.Concurrency, limitertest.FixedWindow, limitertest.SlidingWindow, limitertest.TokenBucket, limitertest.Calendar,
}

// build makes one of our limiters.
func build(k limitertest.Kind, l limitertest.Limits) (limiter.Limiter, error) {
	if k == limitertest.Unlimited {
		return limiter.NewUnlimited(), nil
	}
	return limiter.New(l.Of(k))
}

// reconfigure changes the limits of one of our limiters.
func reconfigure(l limiter.Limiter, to limitertest.Limits) error {
	live := l.(limiter.Configurable)
	for _, k := range kinds {
		if o := to.Of(k); o.Limits().Kind == live.Limits().Kind {
			return live.Reconfigure(o)
		}
	}
	return live.Reconfigure(to.TokenBucket()) // a zero value
}

func TestConformance(t *testing.T) {
	for _, k := range append([]limitertest.Kind{limitertest.Unlimited}, kinds...) {
		t.Run(k.String(), func(t *testing.T) {
			limitertest.Run(t, limitertest.Subject{
				Kind: k,
				New: func(t testing.TB, l limitertest.Limits) limiter.Limiter {
					made, err := build(k, l)
					if err != nil {
						t.Fatal(err)
					}
					return made
				},
				Reconfigure: reconfigure,
			})
		})
	}
}
