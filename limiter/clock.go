package limiter

import (
	"math"
	"math/bits"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// moment returns the present moment. A moment is an int64 of nanoseconds on the monotonic clock, as [clock.Now] counts
// them. It is negative in a testing/synctest bubble.
func moment() int64 { return int64(clock.Now()) }

const never = math.MaxInt64 // later than every moment

// otherClock reports whether elapsed, the time from a stored moment to now, is so far below 0 that the two were read
// from different clocks.
//
// The reason is testing/synctest: in a bubble it is the year 2000, so a limiter that was made outside, such as a
// package variable, has moments that lie decades in the future when a test uses it in a bubble. It would grant nothing
// for that long. If a goroutine reads the clock and then waits for a lock, elapsed can also be below 0, but only by the
// time of that wait.
func otherClock(elapsed int64) bool {
	const tenYears = 10 * 365 * 24 * int64(time.Hour)
	return elapsed < -tenYears
}

// inBubble reports whether now was read in a testing/synctest bubble: outside, moments begin with 0.
func inBubble(now int64) bool { return otherClock(now) }

// later returns at + lines×period, or never if that overflows. Neither lines nor period is negative.
func later(at, lines, period int64) int64 {
	high, low := bits.Mul64(uint64(lines), uint64(period))
	if d := int64(low); high == 0 && d >= 0 && at <= never-d {
		return at + d
	}
	return never
}

// until returns the time from now to a moment, or the longest time there is.
func until(at, now int64) time.Duration {
	if now < 0 && at > never+now {
		return never
	}
	return time.Duration(at - now)
}
