package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clock"
)

// A longest knows the longest duration of the last minute, as TimeWindowMax of Micrometer does. Prometheus gets no
// maximum of a histogram, and reading a longest does not reset it, so that several readers get the same.
//
// Time is divided into periods. A slot has the longest duration of one period, and is used for another period when that
// one is too old. A longest covers the last five periods and the one that has begun: at least 75 seconds and less than
// 90, so that a reader that comes once a minute misses nothing.
type longest struct {
	// The number of the period in the upper bits, and the duration in microseconds in the lower. So the larger number
	// wins: that of a later period, or that of a longer duration in the same period.
	slots [slotCount]atomic.Uint64
}

const (
	slotCount    = 6
	period       = 15 * time.Second
	durationBits = 36
	maxRecorded  = (1<<durationBits - 1) * time.Microsecond // 19 hours; a longer duration counts as this
)

// periodOf returns the number of the period of a moment by clock.Now. It is above 0, also in a bubble of
// testing/synctest, where the clock is 26 years behind.
func periodOf(now time.Duration) uint64 {
	return uint64(now/period + 1<<(63-durationBits)) //nolint:gosec // see above
}

// record records that something has taken d. now is by clock.Now.
func (l *longest) record(now, d time.Duration) {
	at := periodOf(now)
	packed := at<<durationBits | uint64(max(0, min(d, maxRecorded))/time.Microsecond)
	slot := &l.slots[at%slotCount]
	for old := slot.Load(); old < packed && !slot.CompareAndSwap(old, packed); old = slot.Load() {
	}
}

// now returns the longest duration of the last minute.
func (l *longest) now() time.Duration { return l.at(clock.Now()) }

// at returns the longest duration that was recorded in the last minute before now, or 0 if there is none.
func (l *longest) at(now time.Duration) (most time.Duration) {
	oldest := periodOf(now) - (slotCount - 1)
	for i := range l.slots {
		if packed := l.slots[i].Load(); packed>>durationBits >= oldest {
			most = max(most, time.Duration(packed&(1<<durationBits-1))*time.Microsecond) //nolint:gosec // 36 bits
		}
	}
	return most
}
