package limiter

import (
	"math"
	"math/bits"
	"time"
)

// epoch is where this package's moments count from. A moment is an int64 of
// nanoseconds since then on the monotonic clock, so a step of the wall clock
// changes nothing, and reading it costs half of what time.Now does. In a
// testing/synctest bubble, where it is the year 2000, moments are negative.
var epoch = time.Now()

// never is the moment that does not come.
const never = math.MaxInt64

func clock() int64 { return int64(time.Since(epoch)) }

// otherClock is how far back the clock must be for it to be another one: that of
// a bubble in which a limiter is used that was made outside. Somebody who has read
// the clock and then waited for a lock is late as well, but never by years.
const otherClock = -10 * 365 * 24 * int64(time.Hour)

// inBubble reports whether now was read in a testing/synctest bubble.
func inBubble(now int64) bool { return now < otherClock }

// later is at + lines×period, or never where that overflows. Neither lines nor
// period is negative.
func later(at, lines, period int64) int64 {
	high, low := bits.Mul64(uint64(lines), uint64(period))
	if d := int64(low); high == 0 && d >= 0 && at <= never-d {
		return at + d
	}
	return never
}

// until is the time from now to a moment, or the longest there is.
func until(at, now int64) time.Duration {
	if now < 0 && at > never+now {
		return never
	}
	return time.Duration(at - now)
}
