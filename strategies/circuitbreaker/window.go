package circuitbreaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// segments is how many steps a window slides on in.
const segments = 10

// A window counts outcomes in the segments of the sampling duration: in the one
// that now is in and in those before it. To count takes no lock.
type window struct {
	began    time.Duration // the first segment's beginning, on sinceStart's clock
	width    time.Duration // of a segment
	mu       sync.Mutex    // held to begin a segment
	segments [segments]segment
}

// A segment counts the outcomes of one stretch of time. Which one that is, says
// its number; 0: none. An outcome that takes longer to be counted than the whole
// window is long may land in a later stretch, which is not worth a lock.
type segment struct {
	number              atomic.Int64
	succeeded, failures atomic.Int64
}

type counts struct{ throughput, failures int64 }

func newWindow(sampling, now time.Duration) *window {
	width := sampling / segments
	if sampling%segments != 0 {
		width++ // never 0
	}
	return &window{began: now, width: width}
}

func (w *window) succeeded(now time.Duration) {
	if s := w.at(now); s != nil {
		s.succeeded.Add(1)
	}
}

func (w *window) failed(now time.Duration) {
	if s := w.at(now); s != nil {
		s.failures.Add(1)
	}
}

// number returns which segment now is in, 1 for the first.
func (w *window) number(now time.Duration) int64 {
	return int64(max(now-w.began, 0)/w.width) + 1
}

// at returns the segment that now is in, nil if it is over already.
func (w *window) at(now time.Duration) *segment {
	number := w.number(now)
	s := &w.segments[number%segments]
	if s.number.Load() == number {
		return s
	}
	return w.begin(s, number)
}

// begin makes s the segment of that number.
func (w *window) begin(s *segment, number int64) *segment {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := s.number.Load(); old == number {
		return s // somebody else was here first
	} else if old > number {
		return nil // whoever read the clock was long in coming
	}
	s.number.Store(0) // so that nobody takes the old counts for new ones
	s.succeeded.Store(0)
	s.failures.Store(0)
	s.number.Store(number)
	return s
}

// counts adds up what is in the window.
func (w *window) counts(now time.Duration) counts {
	var sum counts
	oldest := max(w.number(now)-segments+1, 1)
	for i := range w.segments {
		if s := &w.segments[i]; s.number.Load() >= oldest {
			failures := s.failures.Load()
			sum.failures += failures
			sum.throughput += failures + s.succeeded.Load()
		}
	}
	return sum
}

// tooMany tells whether these are too many failures. It divides because 7/100 is
// the same float64 as 0.07, whereas 0.07*100 is more than 7.
func (c counts) tooMany(o *Options) bool {
	return c.throughput >= int64(o.MinimumThroughput) &&
		float64(c.failures)/float64(c.throughput) >= o.FailureRatio
}
