package deadline

import (
	"sync/atomic"
	"time"
)

// lastWall is a reading of both clocks that can be used like a new one until the wall clock is set.
var lastWall atomic.Pointer[time.Time]

// wallClock returns a reading of both clocks, with the difference between them that they have now. It allocates only if
// the wall clock was set, or has drifted by a millisecond, since the last call.
func wallClock() *time.Time {
	now := time.Now()
	if hasNoMonotonic(now) {
		kept := now
		return &kept // the clock of a testing/synctest bubble
	}
	if last := lastWall.Load(); last != nil {
		drift := now.Round(0).Sub(last.Round(0)) - now.Sub(*last)
		if -time.Millisecond < drift && drift < time.Millisecond {
			return last
		}
	}
	kept := now
	lastWall.Store(&kept)
	return &kept
}

// hasNoMonotonic reports whether t has only the reading of the wall clock.
func hasNoMonotonic(t time.Time) bool {
	return t == t.Round(0) //nolint:staticcheck // Equal does not look at the monotonic reading
}
