// Package clock reads the monotonic clock, and waits by it.
package clock

import (
	"context"
	"time"
)

// start is what moments count from. [time.Since] of a time that is kept reads only the monotonic clock, and costs
// half of what [time.Now] does.
var start = time.Now()

// Now returns the present moment, as the time since the process started. A step of the wall clock does not change it.
// In a testing/synctest bubble, where the clock begins in the year 2000, it is negative.
func Now() time.Duration { return time.Since(start) }

// Of returns t as a moment, in terms of the monotonic clock if t has a reading of it.
func Of(t time.Time) time.Duration { return t.Sub(start) }

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
