// Package deterministic is the door by which package simulate makes a run repeat exactly. Outside of a simulation it does
// nothing: turns return at once, and random numbers are those of math/rand/v2.
//
// Three things would differ from run to run. The order of goroutines at one instant: a goroutine that has waited, and goes
// on to something that others use, takes its turn first ([Take]). Random decisions, such as the jitter of a retry: they come
// from the context of the execution ([WithRandom]), or from a [Maker] for what runs in the background. Hashes with a random
// seed, which decide what key a keyed limiter forgets: while a simulation runs, new limiters use [Hash].
//
// What limiters grant is told, too ([Granted]): a function of the program that says the number could say another one if it were
// asked a second time.
//
// The registry has the other half of the door: if its listener has a method Interpose, that puts steps between strategies.
package deterministic

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Runs is how many simulations there are now.
var Runs atomic.Int32

// A Taker is the value of a simulated execution in its context, under [TurnKey].
type Taker interface {
	// Take returns when the goroutine has its turn.
	Take()
}

// TurnKey is the key of the Taker in a context.
type TurnKey struct{}

// Take returns when the execution of ctx has its turn. The caller must not hold a lock.
func Take(ctx context.Context) {
	if Runs.Load() == 0 {
		return
	}
	if t, ok := ctx.Value(TurnKey{}).(Taker); ok {
		t.Take()
	}
}

// Granted tells the simulated execution of ctx how many permits a limiter has granted it, if its Taker has a method Granted.
func Granted(ctx context.Context, permits int) {
	if Runs.Load() == 0 {
		return
	}
	if t, ok := ctx.Value(TurnKey{}).(interface{ Granted(permits int) }); ok {
		t.Granted(permits)
	}
}

// A Source is a source of random numbers. A nil Source has those of math/rand/v2. Another one must not be used
// concurrently.
type Source struct{ *rand.Rand }

type randomKey struct{}

// WithRandom returns a context whose executions take their random numbers from s.
func WithRandom(ctx context.Context, s *Source) context.Context {
	return context.WithValue(ctx, randomKey{}, s)
}

func randomOf(ctx context.Context) *Source {
	s, _ := ctx.Value(randomKey{}).(*Source)
	return s
}

// Float64 returns a random number of ctx from 0 up to but not including 1.
func Float64(ctx context.Context) float64 {
	if s := randomOf(ctx); s != nil {
		return s.Float64()
	}
	return rand.Float64()
}

// UpTo returns a random duration of ctx from 0 up to but not including d, which must be above 0.
func UpTo(ctx context.Context, d time.Duration) time.Duration { return randomOf(ctx).UpTo(d) }

// UpTo returns a random duration from 0 up to but not including d, which must be above 0.
func (s *Source) UpTo(d time.Duration) time.Duration {
	if s == nil {
		return rand.N(d)
	}
	return time.Duration(s.Int64N(int64(d)))
}

// A Maker makes Sources for what runs in the background, such as the queue of a key in a store. A backend of a store that is
// a Maker gives each key of a limiter its own. The numbers of a key then do not depend on which of two keys is served first.
type Maker interface {
	// MakeSource returns a Source for what has that name and key. The same name and key get the same numbers.
	MakeSource(name, key string) *Source
}

// Hash returns the hash of s by FNV-1a, with the bits mixed as in SplitMix64. It is the same in each process.
func Hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
