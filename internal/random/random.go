// Package random has the random numbers of weir's decisions, such as the jitter of a retry. They are those of
// math/rand/v2, unless the context has a [Source], by which package simulate repeats an execution exactly.
package random

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Source is a source of random numbers for the executions of a context. It must not be used concurrently.
type Source struct{ *rand.Rand }

// key is the key of the Source in a context.
type key struct{}

// With returns a context whose executions take their random numbers from s.
func With(ctx context.Context, s *Source) context.Context { return context.WithValue(ctx, key{}, s) }

// Float64 returns a random number from 0 up to but not including 1.
func Float64(ctx context.Context) float64 {
	if s, ok := ctx.Value(key{}).(*Source); ok {
		return s.Float64()
	}
	return rand.Float64()
}

// UpTo returns a random duration from 0 up to but not including d, which must be above 0.
func UpTo(ctx context.Context, d time.Duration) time.Duration {
	if s, ok := ctx.Value(key{}).(*Source); ok {
		return time.Duration(s.Int64N(int64(d)))
	}
	return rand.N(d)
}
