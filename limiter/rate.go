package limiter

import (
	"math/bits"
	"time"
)

// PerSecond returns the options of a [TokenBucket] that grants n permits a second in the long run, in bursts of
// up to burst:
//
//	l, err := limiter.NewTokenBucket(limiter.PerSecond(10, 20))
//
// The tokens come as evenly as possible: here one every 100 ms. The rate is exactly n if n divides the nanoseconds of a
// second. Otherwise it can be slightly lower: by less than a thousandth for n up to a million. If n or burst is below
// 1, the options are invalid, and the constructor returns an error. There is no queue; for callers that shall wait, set QueueLimit.
func PerSecond(n, burst int) TokenBucketOptions { return per(time.Second, n, burst) }

// PerMinute is [PerSecond] for n permits a minute.
func PerMinute(n, burst int) TokenBucketOptions { return per(time.Minute, n, burst) }

// PerHour is [PerSecond] for n permits an hour.
func PerHour(n, burst int) TokenBucketOptions { return per(time.Hour, n, burst) }

// evenEnough is the period down to which tokens come one by one. Rounding a shorter period up to whole nanoseconds
// would lower the rate noticeably.
const evenEnough = time.Millisecond

// per returns the options of a bucket of n tokens in that time. It never adds more tokens at once than the bucket
// holds, because the others would be lost.
func per(d time.Duration, n, burst int) TokenBucketOptions {
	o := TokenBucketOptions{TokenLimit: burst, TokensPerPeriod: n, ReplenishmentPeriod: d}
	if n < 1 || burst < 1 {
		return o
	}
	divisor := gcd(int64(n), int64(d))
	exact := TokenBucketOptions{
		TokenLimit: burst, TokensPerPeriod: int(int64(n) / divisor), ReplenishmentPeriod: d / time.Duration(divisor),
	}
	if exact.TokensPerPeriod == 1 || exact.ReplenishmentPeriod <= evenEnough && exact.TokensPerPeriod <= burst {
		return exact
	}
	// The tokens of one evenEnough, but at most burst, come at once; their period is rounded up.
	tokens := min((int64(n)-1)/int64(d/evenEnough)+1, int64(burst))
	high, low := bits.Mul64(uint64(tokens), uint64(d))
	period, rest := bits.Div64(high, low, uint64(n))
	if rest > 0 {
		period++
	}
	o.TokensPerPeriod, o.ReplenishmentPeriod = int(tokens), time.Duration(period)
	return o
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
