// Package random has the random numbers of weir's decisions, such as the jitter of a retry. They are those of
// math/rand/v2, unless there is a [Source], by which package simulate repeats a run exactly.
//
// An execution has its Source in its context. What runs in the background, such as the queue of a key in a store, belongs
// to no execution; it asks a [Maker] for a Source of its own.
package random

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Source is a source of random numbers. A nil Source has those of math/rand/v2. Another one must not be used
// concurrently.
type Source struct{ *rand.Rand }

// key is the key of the Source in a context.
type key struct{}

// With returns a context whose executions take their random numbers from s.
func With(ctx context.Context, s *Source) context.Context { return context.WithValue(ctx, key{}, s) }

// from returns the Source in ctx, or nil.
func from(ctx context.Context) *Source {
	s, _ := ctx.Value(key{}).(*Source)
	return s
}

// Float64 returns a random number of ctx from 0 up to but not including 1.
func Float64(ctx context.Context) float64 { return from(ctx).Float64() }

// UpTo returns a random duration of ctx from 0 up to but not including d, which must be above 0.
func UpTo(ctx context.Context, d time.Duration) time.Duration { return from(ctx).UpTo(d) }

// Float64 returns a random number from 0 up to but not including 1.
func (s *Source) Float64() float64 {
	if s == nil {
		return rand.Float64()
	}
	return s.Rand.Float64()
}

// UpTo returns a random duration from 0 up to but not including d, which must be above 0.
func (s *Source) UpTo(d time.Duration) time.Duration {
	if s == nil {
		return rand.N(d)
	}
	return time.Duration(s.Int64N(int64(d)))
}

// A Maker makes Sources for what runs in the background. A backend of a store that is a Maker gives each key of a limiter
// its own. The numbers of a key then do not depend on which of two keys is served first.
type Maker interface {
	// MakeSource returns a Source for what has that name and key. The same name and key get the same numbers.
	MakeSource(name, key string) *Source
}
