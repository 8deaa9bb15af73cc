// Package window counts what has happened in the latest periods of time.
package window

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A Window counts two things, such as successes and failures, by segments of the same length. Counting takes no lock, except
// for the first count of a segment. Make one with [New]. It is safe for concurrent use.
//
// The segment with the number n is kept at index n modulo the number of segments, in the place of an older one.
type Window struct {
	began    time.Duration // by package clock
	width    time.Duration // of a segment
	mu       sync.Mutex    // held to reuse a segment
	segments []Segment     // a power of two, because a division would cost more than the count
}

// A Segment counts what has happened in one period. A goroutine gets a Segment from [Window.At] and then counts in it. If it is
// delayed between the two until the segment is reused, it counts in a later period. That is accepted, because a lock
// would cost every execution.
type Segment struct {
	number atomic.Int64 // of the period; 0 if it has none
	Counts [2]atomic.Int64
}

// New makes a window that begins now, by package clock, and remembers at least that many segments, the present one included.
func New(now, width time.Duration, segments int) *Window {
	return &Window{began: now, width: width, segments: make([]Segment, 1<<bits.Len(uint(segments-1)))} //nolint:gosec // not negative
}

// At returns the segment of that time, or nil if a later one has replaced it.
func (w *Window) At(now time.Duration) *Segment {
	number := w.number(now)
	s := w.at(number)
	if s.number.Load() == number {
		return s
	}
	return w.begin(s, number)
}

// number returns the number of the segment of that time. The numbers are above 0, also if the window was made outside the
// testing/synctest bubble in which it is used, where the clock begins in the year 2000.
func (w *Window) number(now time.Duration) int64 { return int64((now-w.began)/w.width) + 1<<62 }

func (w *Window) at(number int64) *Segment { return &w.segments[int(number)&(len(w.segments)-1)] }

// begin makes s the segment of that number and returns it. If s is the segment of a later number already, it returns nil.
func (w *Window) begin(s *Segment, number int64) *Segment {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := s.number.Load(); old == number {
		return s // another goroutine was first
	} else if old > number {
		return nil // stale reading of the clock: the segment has been reused
	}
	s.number.Store(0) // so that no other goroutine takes the old counts for new ones
	s.Counts[0].Store(0)
	s.Counts[1].Store(0)
	s.number.Store(number)
	return s
}

// Sum returns what the last n segments have counted, that of now included.
func (w *Window) Sum(now time.Duration, n int) (sum [2]int64) {
	last := w.number(now)
	for number := last - int64(n) + 1; number <= last; number++ {
		if s := w.at(number); s.number.Load() == number {
			sum[0] += s.Counts[0].Load()
			sum[1] += s.Counts[1].Load()
		}
	}
	return sum
}

// TakeBack counts one less of the second in the oldest of the last n segments that has one. No other goroutine may count
// the second meanwhile.
func (w *Window) TakeBack(now time.Duration, n int) {
	last := w.number(now)
	for number := last - int64(n) + 1; number <= last; number++ {
		if s := w.at(number); s.number.Load() == number && s.Counts[1].Load() > 0 {
			s.Counts[1].Add(-1)
			return
		}
	}
}
