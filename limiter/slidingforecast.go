package limiter

import (
	"sync"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

func (w *SlidingWindow) timerFor(n int) int64 {
	if w.manual {
		return never
	}
	return w.freeAt(int64(n))
}

// freeAt returns the grid line on which n permits are free if none are taken.
func (w *SlidingWindow) freeAt(n int64) int64 {
	over := n - w.free()
	if over <= 0 {
		return w.line
	}
	line := w.line // of the segment that has to leave
	if w.pastUsed() >= over {
		line = w.past.get(w.past.firstHolding(0, over, w.expired)).line
	}
	return saturate.Add(line, w.window())
}

func (w *SlidingWindow) retryAfter(now int64, n int) time.Duration {
	if ahead, ok := w.ahead(n); ok {
		return max(until(w.freeAt(ahead+weight(n)), now), 1)
	}
	return waitFor(now, w.line, w.forecast(n), w.period)
}

// ahead returns how many permits the waiters take before a newcomer can take n. ok is false if that needs a forecast.
// No forecast is needed if the waiters' permits and the newcomer's fit into one window: the waiters' permits then leave
// the window after all permits that are in it now, so the newcomer is served on the line on which the sum is free.
func (w *SlidingWindow) ahead(n int) (permits int64, ok bool) {
	q := &w.queue
	if q.empty() {
		return 0, true
	}
	return q.permits, n > 0 && q.order == OldestFirst && q.permits <= w.limit-int64(n)
}

// windowForecasts holds forecasts for reuse: a flood of callers needs one for each rejection by a limiter with a long
// queue.
var windowForecasts = sync.Pool{New: func() any { return new(windowForecast) }}

// forecast returns the number of grid lines after which a newcomer could take n permits.
func (w *SlidingWindow) forecast(n int) int64 {
	f := windowForecasts.Get().(*windowForecast)
	defer windowForecasts.Put(f)
	*f = windowForecast{window: w}
	lines := linesAhead(f, &w.queue, n)
	f.window = nil
	return lines
}

// windowForecast is a [forecast] of a sliding window: the permits that were taken in it, and permits that the forecast
// itself has taken, in the order in which they leave the window.
type windowForecast struct {
	window     *SlidingWindow
	passed     int64 // how many lines have passed
	expired    int64 // how many of the window's permits have left
	searchFrom int   // the index where searches begin: no earlier segment is in the window
	held       int64 // permits that the forecast has taken and that have not left
	taken      [exactWaiters]struct{ leaves, permits int64 }
	first      int // the index in taken of the first that has not left
	length     int // the number of entries in taken
}

func (f *windowForecast) linesUntil(n int64) int64 {
	used := f.window.used() - f.expired
	over := used + f.held - (f.window.limit - n)
	switch {
	case over <= 0:
		return 0
	case over <= used:
		return f.linesUntilExpired(f.expired+over) - f.passed
	}
	over -= used
	for _, t := range f.taken[f.first:f.length] {
		if over -= t.permits; over <= 0 {
			return t.leaves - f.passed
		}
	}
	return int64(f.window.segments) // not reached: after a whole window, all permits have left
}

func (f *windowForecast) pass(lines int64) {
	f.passed += lines
	f.expired = f.expiredAfter(f.passed)
	for f.first < f.length && f.taken[f.first].leaves <= f.passed {
		f.held -= f.taken[f.first].permits
		f.first++
	}
}

// A waiter takes its permits in the segment that is then current, so they leave after all that were taken before.
func (f *windowForecast) take(n int64) {
	f.held += n
	f.taken[f.length].leaves = f.passed + int64(f.window.segments)
	f.taken[f.length].permits = n
	f.length++
}

// atMost is the lesser of two bounds. A waiter waits for one window at most. And while there are waiters, less than
// largest permits are free, so that each window gives at least gain.
func (f *windowForecast) atMost(waiters, permits, largest int64) int64 {
	windows, segments := waiters, int64(f.window.segments)
	if gain := f.window.limit - largest + 1; gain > 0 {
		windows = min(windows, 1+(permits-1)/gain)
	}
	if windows > never/segments {
		return never
	}
	return windows * segments
}

// linesUntilExpired returns after how many lines that many of the oldest permits in the window have left it.
func (f *windowForecast) linesUntilExpired(permits int64) int64 {
	w, line := f.window, f.window.line
	if permits <= w.pastUsed() {
		f.searchFrom = w.past.firstHolding(f.searchFrom, permits, w.expired)
		line = w.past.get(f.searchFrom).line
	}
	return int64(w.segments) - (w.line-line)/w.period
}

// expiredAfter returns how many of the permits in the window have left it after that many lines.
func (f *windowForecast) expiredAfter(lines int64) int64 {
	w := f.window
	if lines >= int64(w.segments) {
		return w.used()
	}
	f.searchFrom = w.past.firstYounger(f.searchFrom, w.line, (int64(w.segments)-lines)*w.period)
	return w.past.takenUntil(f.searchFrom-1, w.expired) - w.expired
}
