package timeout

import (
	"math"
	"time"
)

// processStart is what this package's moments count from: time.Since of a time
// that is kept reads only the monotonic clock, and costs half of time.Now.
var processStart = time.Now()

func sinceStart() time.Duration { return time.Since(processStart) }

// addSaturated is a + b, or the longest duration where that overflows. b is not
// negative.
func addSaturated(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
