package backend

// Convert converts s, which was stored under an older definition, to a state of d. Permits that were granted stay
// granted. Stores do not convert states; they report [OutdatedState] (see [Backend]).
//
// First, s is advanced by its old schedule to the moment at which d came into force. If the segments of a sliding window
// have changed, what was taken in an old segment moves to the latest of the new segments that it can belong to.
func (d *Definition) Convert(s State) State {
	if s.Period <= 0 || s.Kind < KindTokenBucket || s.Kind > KindSlidingWindow {
		return d.InitialState(d.Version) // the schedule of s is broken, so the key starts full
	}
	at := max(d.startTime(s), s.TickTime(s.Tick))
	s = s.Definition().Advance(s, at)
	next := State{Schedule: d.Schedule(), Tick: d.TickAt(at)}
	switch {
	case d.Kind == KindSlidingWindow && s.Kind == KindSlidingWindow:
		next.Taken = d.resegment(s, at)
	case d.Kind == KindSlidingWindow && s.Missing > 0:
		next.Taken = []Segment{{Tick: next.Tick, Permits: s.Missing}}
	case d.Kind != KindSlidingWindow:
		next.Missing, next.RefundFloor = s.Missing, s.RefundFloor
		if d.Reached {
			next.Missing -= min(next.Missing, d.refill())
			next.RefundFloor = min(next.RefundFloor, next.Missing)
		}
		if d.Refill == 0 || s.Refill == 0 {
			next.RefundFloor = 0
		}
	}
	for _, t := range next.Taken {
		next.Missing += t.Permits
	}
	return next
}

// startTime returns when d came into force. Usually that is d.Version. If the server's clock had stepped back, d.Version
// is the version before plus one and says nothing about time; startTime returns the time of s.
func (d *Definition) startTime(s State) int64 {
	switch {
	case d.Reached:
		return d.Anchor
	case d.Version == s.Version+1:
		return s.TickTime(s.Tick)
	}
	return d.Version
}

// resegment moves what was taken into the segments of d's schedule.
func (d *Definition) resegment(s State, at int64) []Segment {
	tick := d.TickAt(at)
	var taken []Segment
	for _, t := range s.Taken {
		last := s.TickTime(t.Tick+1) - 1 // the last moment of the segment
		if t.Tick == s.Tick {
			last = at
			if d.Reached && d.Anchor == at { // a segment of d begins at that moment; the permits were taken before it
				last = at - 1
			}
		}
		to := min(d.TickAt(last), tick)
		switch newest := len(taken) - 1; {
		case to <= tick-d.Segments: // it does not count any more
		case newest >= 0 && taken[newest].Tick == to:
			taken[newest].Permits += t.Permits
		default:
			taken = append(taken, Segment{Tick: to, Permits: t.Permits})
		}
	}
	return taken
}
