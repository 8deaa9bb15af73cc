package store

// Wait returns how many microseconds after now n permits will be free if nobody takes
// any meanwhile; 0 if they are. n == 0 stands for 1. s is right for now.
func (d *Definition) Wait(s State, now, n int64) int64 {
	over := s.Missing + max(n, 1) - d.Permits
	if over <= 0 {
		return 0
	}
	return max(d.timeOf(d.lineOf(s, over))-now, 1)
}

// lineOf is the line on which as many permits have come back.
func (d *Definition) lineOf(s State, permits int64) int64 {
	switch {
	case d.Kind != KindSlidingWindow && d.Refill == 0:
		return s.Line + 1
	case d.Kind != KindSlidingWindow:
		return addUp(s.Line, (permits-1)/d.Refill+1)
	}
	for _, t := range s.Taken {
		if permits -= t.Permits; permits <= 0 {
			return t.Line + d.Segments
		}
	}
	return s.Line + d.Segments
}

// FullAt is the moment at which a state says no more than none would, in µs of the server's
// clock: the store may forget it then, and not before.
func (d *Definition) FullAt(s State) int64 {
	if s.Missing <= 0 {
		return d.timeOf(s.Line)
	}
	return d.timeOf(d.lineOf(s, s.Missing))
}
