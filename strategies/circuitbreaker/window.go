package circuitbreaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// segmentCount is the number of segments of a window.
const segmentCount = 10

// A window counts the outcomes of the sampling duration, in segments of a tenth of it: the present segment and the nine
// before it count. Counting takes no lock.
//
// The segment with the number n covers [began + (n-1)×width, began + n×width), and is kept at index n % segmentCount.
type window struct {
	began    time.Duration // by clock.Now
	width    time.Duration // of a segment
	mu       sync.Mutex    // held to reuse a segment
	segments [segmentCount]segment
}

// A segment counts the outcomes of one period. A goroutine gets a segment from at and then counts in it. If it is
// delayed between the two for longer than the whole window, it counts in a later period. That is accepted, because a
// lock would cost every execution.
type segment struct {
	number              atomic.Int64 // of the period; 0 if it has none
	successes, failures atomic.Int64
}

// counts are the sums of a window.
type counts struct{ throughput, failures int64 }

// newWindow makes a window of that length that begins now.
func newWindow(sampling, now time.Duration) *window {
	width := sampling / segmentCount
	if sampling%segmentCount != 0 {
		width++ // never 0
	}
	return &window{began: now, width: width}
}

// number returns the number of the segment that covers now.
func (w *window) number(now time.Duration) int64 {
	return int64(max(now-w.began, 0)/w.width) + 1
}

// at returns the segment that covers now, or nil if a later one has replaced it.
func (w *window) at(now time.Duration) *segment {
	number := w.number(now)
	s := &w.segments[number%segmentCount]
	if s.number.Load() == number {
		return s
	}
	return w.begin(s, number)
}

// begin makes s the segment of that number and returns it. If s is the segment of a later number already, it returns
// nil.
func (w *window) begin(s *segment, number int64) *segment {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := s.number.Load(); old == number {
		return s // another goroutine was first
	} else if old > number {
		return nil // stale reading of the clock: the segment has been reused
	}
	s.number.Store(0) // so that no other goroutine takes the old counts for new ones
	s.successes.Store(0)
	s.failures.Store(0)
	s.number.Store(number)
	return s
}

// sum returns the sums of the segments that are in the window at now.
func (w *window) sum(now time.Duration) counts {
	var sum counts
	oldest := max(w.number(now)-segmentCount+1, 1)
	for i := range w.segments {
		if s := &w.segments[i]; s.number.Load() >= oldest {
			failures := s.failures.Load()
			sum.failures += failures
			sum.throughput += failures + s.successes.Load()
		}
	}
	return sum
}

// tooMany reports whether the circuit opens with these counts. It divides because 7/100 is the same float64 as 0.07, but
// 0.07*100 is more than 7.
func (c counts) tooMany(o *Options) bool {
	return c.throughput >= int64(o.MinimumThroughput) &&
		float64(c.failures)/float64(c.throughput) >= o.FailureRatio
}
