package bench

import (
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// BenchmarkLimiterGranted takes permits of one limiter that always has one left.
func BenchmarkLimiterGranted(b *testing.B) {
	compareByGoroutines(b, []contender{
		{"weir-token-bucket", func(*testing.B) func() bool {
			return granted(weirBucket(plenty, time.Second))
		}},
		{"weir-fixed-window", func(*testing.B) func() bool {
			return granted(weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{
				PermitLimit: plenty, Window: time.Second,
			})))
		}},
		{"weir-sliding-window", func(*testing.B) func() bool {
			return granted(weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{
				PermitLimit: plenty, Window: time.Second, SegmentsPerWindow: 10,
			})))
		}},
		{"x-time-rate", func(*testing.B) func() bool {
			return rate.NewLimiter(plenty, plenty).Allow
		}},
		{"failsafe-smooth", func(*testing.B) func() bool {
			// One permit a nanosecond is the highest rate that it has. A call takes longer.
			return ratelimiter.NewSmoothWithMaxRate[any](time.Nanosecond).TryAcquirePermit
		}},
		{"failsafe-bursty", func(*testing.B) func() bool {
			return ratelimiter.NewBursty[any](plenty, time.Second).TryAcquirePermit
		}},
	})
}

// BenchmarkLimiterRejected asks one limiter whose only permit is taken and does not come back.
func BenchmarkLimiterRejected(b *testing.B) {
	compare(b, []contender{
		{"weir-token-bucket", func(b *testing.B) func() bool {
			return drained(b, weirBucket(1, time.Hour))
		}},
		{"weir-fixed-window", func(b *testing.B) func() bool {
			return drained(b, weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{
				PermitLimit: 1, Window: time.Hour,
			})))
		}},
		{"weir-sliding-window", func(b *testing.B) func() bool {
			return drained(b, weir.Must(limiter.NewSlidingWindow(limiter.SlidingWindowOptions{
				PermitLimit: 1, Window: time.Hour, SegmentsPerWindow: 10,
			})))
		}},
		{"x-time-rate", func(b *testing.B) func() bool {
			l := rate.NewLimiter(rate.Every(time.Hour), 1)
			return drainedPeer(b, l.Allow)
		}},
		{"failsafe-smooth", func(b *testing.B) func() bool {
			return drainedPeer(b, ratelimiter.NewSmooth[any](1, time.Hour).TryAcquirePermit)
		}},
		{"failsafe-bursty", func(b *testing.B) func() bool {
			return drainedPeer(b, ratelimiter.NewBursty[any](1, time.Hour).TryAcquirePermit)
		}},
	})
}

// BenchmarkLimiterRefilled takes permits of one limiter that is refilled in every call, because more than a nanosecond has
// passed since the last.
func BenchmarkLimiterRefilled(b *testing.B) { compareByGoroutines(b, refilledOnes) }

var refilledOnes = []contender{
	{"weir-token-bucket", func(*testing.B) func() bool {
		return granted(weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: plenty, TokensPerPeriod: 1, ReplenishmentPeriod: time.Nanosecond,
		})))
	}},
	{"weir-fixed-window", func(*testing.B) func() bool {
		return granted(weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{
			PermitLimit: plenty, Window: time.Nanosecond,
		})))
	}},
	{"floor-gcra", func(*testing.B) func() bool {
		var g gcra
		return func() bool { return g.allow(time.Nanosecond) }
	}},
}

// BenchmarkLimiterRejectedKnowing is BenchmarkLimiterRejected for a caller who reads when to come back. failsafe-go
// does less work: it does not say when.
func BenchmarkLimiterRejectedKnowing(b *testing.B) { compareByGoroutines(b, rejectingOnes) }

var rejectingOnes = []contender{
	{"weir-token-bucket", func(b *testing.B) func() bool { return exhausted(b, weirBucket(1, time.Hour)) }},
	{"weir-fixed-window", func(b *testing.B) func() bool {
		return exhausted(b, weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour})))
	}},
	{"failsafe-smooth", func(b *testing.B) func() bool {
		return drainedPeer(b, ratelimiter.NewSmooth[any](1, time.Hour).TryAcquirePermit)
	}},
	{"failsafe-bursty", func(b *testing.B) func() bool {
		return drainedPeer(b, ratelimiter.NewBursty[any](1, time.Hour).TryAcquirePermit)
	}},
}

// drained takes the only permit.
func drained(b *testing.B, l limiter.Limiter) func() bool {
	takeOne(b, l)
	return rejected(l)
}

// exhausted is drained for a caller who reads when to come back.
func exhausted(b *testing.B, l limiter.Limiter) func() bool {
	takeOne(b, l)
	return rejectedKnowing(l)
}

func takeOne(b *testing.B, l limiter.Limiter) {
	b.Helper()
	if !granted(l)() {
		b.Fatal("the first permit was not granted")
	}
}

func drainedPeer(b *testing.B, try func() bool) func() bool {
	if !try() {
		b.Fatal("the first permit was not granted")
	}
	return func() bool { return !try() }
}
