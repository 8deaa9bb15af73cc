package main

import (
	"syscall"
	"time"
)

// sleepUntil sleeps by the system's own timer: Go's wakes up to a millisecond late if nothing else runs, which is more than
// most answers take.
func sleepUntil(due time.Time) {
	for d := time.Until(due); d > 0; d = time.Until(due) {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil)
	}
}
