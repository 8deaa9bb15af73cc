package limiter

// windowForecast is a forecast of a sliding window: the segments as they are,
// followed by what the forecast itself has taken, in the order in which they
// leave the window.
type windowForecast struct {
	window *SlidingWindow
	used   int64
	line   int64 // lines gone by
	left   int   // segments of the window that have left
	taken  [exactWaiters]struct{ leaves, permits int64 }
	gone   int // of taken, how many have left
	held   int // of taken, how many there are
}

// linesUntil goes through what will leave, the soonest first.
func (f *windowForecast) linesUntil(n int64) int64 {
	over := f.used - (f.window.shared.limit - n)
	if over <= 0 {
		return 0
	}
	for i := f.left + 1; i <= len(f.window.taken); i++ {
		if over -= f.window.taken[f.window.leaving(i)]; over <= 0 {
			return int64(i) - f.line
		}
	}
	for _, t := range f.taken[f.gone:f.held] {
		if over -= t.permits; over <= 0 {
			return t.leaves - f.line
		}
	}
	return int64(len(f.window.taken)) // not reached: everything leaves in the end
}

func (f *windowForecast) pass(lines int64) {
	f.line += lines
	for f.left < len(f.window.taken) && int64(f.left) < f.line {
		f.left++
		f.used -= f.window.taken[f.window.leaving(f.left)]
	}
	for f.gone < f.held && f.taken[f.gone].leaves <= f.line {
		f.used -= f.taken[f.gone].permits
		f.gone++
	}
}

func (f *windowForecast) take(n int64) {
	f.used += n
	f.taken[f.held].leaves = f.line + int64(len(f.window.taken))
	f.taken[f.held].permits = n
	f.held++
}

// A waiter waits for the whole window at the most.
func (f *windowForecast) atMost(waiters, _ int64) int64 {
	segments := int64(len(f.window.taken))
	if waiters > never/segments {
		return never
	}
	return waiters * segments
}
