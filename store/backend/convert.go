package backend

// Convert returns s, which was written under an older definition, as it is under d: what
// was granted stays granted. A store that finds such a state hands it out (see [Backend]),
// so that this is written once.
//
// The change is counted from the moment at which d came into force. Where the segments of
// a sliding window have changed, what was taken in an old one is counted in the new one
// that leaves last among those it could belong to.
func (d *Definition) Convert(s State) State {
	old := Definition{Limits: Limits{Kind: s.Kind, Period: s.Period, Refill: s.Refill, Segments: s.Segments}, Anchor: s.Anchor}
	if s.Period <= 0 || s.Kind < KindTokenBucket || s.Kind > KindSlidingWindow {
		return d.InitialState(d.Version) // not to be understood
	}
	at := max(d.changed(s), s.TickTime(s.Tick))
	s = old.Advance(s, at)
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

// changed is the moment at which d came into force. After the clock has stepped back behind
// the version before, d.Version is not a moment: then no time has gone by for s.
func (d *Definition) changed(s State) int64 {
	switch {
	case d.Reached:
		return d.Anchor
	case d.Version == s.Version+1:
		return s.TickTime(s.Tick)
	}
	return d.Version
}

// resegment sorts what was taken into the segments of d's grid.
func (d *Definition) resegment(s State, at int64) []Segment {
	line := d.TickAt(at)
	var taken []Segment
	for _, t := range s.Taken {
		last := s.TickTime(t.Tick+1) - 1 // the segment's last instant
		if t.Tick == s.Tick {
			last = at
			if d.Reached && d.Anchor == at {
				last = at - 1
			}
		}
		to := min(d.TickAt(last), line)
		switch end := len(taken) - 1; {
		case to <= line-d.Segments:
		case end >= 0 && taken[end].Tick == to:
			taken[end].Permits += t.Permits
		default:
			taken = append(taken, Segment{Tick: to, Permits: t.Permits})
		}
	}
	return taken
}
