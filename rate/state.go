package rate

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-go/weir/internal/saturate"
)

// MaxDebt bounds how many permits are missing, and how many State.Refunded counts, so that each store can compute with their
// sum.
const MaxDebt = 1 << 51

// A State is what is taken of one key, and what refunds need to know. The zero State at line k is a key that is full:
// State{Line: k}. It has no reference to another one as long as Segments is not shared.
type State struct {
	// Line is the line for which the other fields hold.
	Line int64
	// Missing is how many permits are missing from full. It is above the limit if that was lowered, or if more was charged
	// than was available.
	Missing int64
	// Refunded, of a bucket or fixed window, is how many permits were given back while lines would have brought them; see
	// [Schedule.Refund]. Lines take from it what they bring beyond Missing.
	Refunded int64
	// Barrier, of a bucket or fixed window, is what Missing + Refunded was when [Schedule.GiveBack] gave permits back on this line.
	Barrier int64
	// Floor, of a token bucket, is the least that refunds can leave missing; see [Schedule.TakeBlock]. Each line lowers it
	// by Refill.
	Floor int64
	// Segments, of a sliding window or calendar, are the segments in which permits were taken that still count, the oldest first.
	Segments []Segment
	// Ahead is how far the Serial of the next segment is ahead of its Line.
	Ahead int64
}

// A Segment is what was taken in one segment of a sliding window.
type Segment struct {
	Line    int64 // the line with which the segment begins
	Serial  int64 // identifies its grants in a [Receipt]: Line, and another number for what is taken after a GiveBack from the segment
	Permits int64
}

// A Receipt says when permits were taken, so that a refund gives back no more than what time has not brought back already.
type Receipt struct {
	Line  int64 // of a sliding window: the Serial of the segment
	Taken int64 // of a bucket or fixed window: Missing + Refunded right after the grant
}

// Full returns the state of a key that is full at the moment now.
func (g *Schedule) Full(now int64) State { return State{Line: g.LineAt(now)} }

// Free returns how many permits are available: below 0 if permits are owed.
func (g *Schedule) Free(s *State) int64 { return g.Permits - s.Missing }

// brought returns the most that so many lines bring to a bucket or fixed window.
func (g *Schedule) brought(lines int64) int64 {
	if g.Kind == TokenBucket {
		return saturate.Mul(lines, g.Refill)
	}
	return min(lines, 1) * math.MaxInt64
}

// Advance brings s to the moment now. If the clock has stepped back behind s, the state moves back with the clock: the same
// permits are missing, and each comes back after as many lines as before the step. But a window of a calendar that has begun does
// not end by a step into the one before: the clocks or time zone databases of two programs can disagree on when it begins, and then
// the first one begins it for both.
func (g *Schedule) Advance(s *State, now int64) { g.AdvanceTo(s, g.LineAt(now)) }

// Advanced returns what [Schedule.Advance] makes of s, which stays as it is.
func (g *Schedule) Advanced(s State, now int64) State {
	s.Segments = slices.Clone(s.Segments)
	g.Advance(&s, now)
	return s
}

// AdvanceTo is [Schedule.Advance] to a line.
func (g *Schedule) AdvanceTo(s *State, line int64) {
	passed := line - s.Line
	if passed == 0 || passed == -1 && g.Kind == Calendar && s.Missing > 0 {
		return
	}
	s.Line = line
	switch {
	case g.segmented():
		g.slide(s, min(passed, 0))
	case passed > 0:
		brought := g.brought(passed)
		s.Floor, s.Barrier = max(s.Floor-brought, 0), 0
		paid := min(s.Missing, brought)
		s.Missing -= paid
		s.Refunded = max(s.Refunded-(brought-paid), 0)
	}
}

// slide moves the segments by a number of lines, and drops segments that do not count any more. Their serials stay, and no later
// segment gets one of them again.
func (g *Schedule) slide(s *State, by int64) {
	if by != 0 {
		s.Ahead -= by
		for i := range s.Segments {
			s.Segments[i].Line += by
		}
	}
	for len(s.Segments) > 0 && s.Segments[0].Line <= s.Line-g.Segments {
		s.Missing -= s.Segments[0].Permits
		s.Segments = s.Segments[1:]
	}
}

// Take takes as many permits as are available, at least least and at most most. It returns how many; ok is false if there are too
// few, and then nothing has changed. If least and most are 0, it reports whether a permit is available.
func (g *Schedule) Take(s *State, least, most int64) (taken int64, ok bool) {
	free := g.Free(s)
	if free < max(least, 1) {
		return 0, false
	}
	return g.add(s, min(most, free)), true
}

// TakeBlock is [Schedule.Take] for a program that grants the permits of the block by itself until lines have brought them back.
// Until then, no refund of earlier grants gives anything back: lines would bring the block back sooner than the program expects.
func (g *Schedule) TakeBlock(s *State, least, most int64) (taken int64, ok bool) {
	taken, ok = g.Take(s, least, most)
	if ok && g.Kind == TokenBucket {
		s.Floor = s.Missing
	}
	return taken, ok
}

// Charge takes n permits, even if they are not available, until [MaxDebt] are missing, or Permits if they are more. It returns
// how many it took.
func (g *Schedule) Charge(s *State, n int64) int64 {
	return g.add(s, min(n, max(MaxDebt, g.Permits)-s.Missing))
}

// add adds n to what is missing.
func (g *Schedule) add(s *State, n int64) int64 {
	if n <= 0 {
		return 0
	}
	s.Missing += n
	if g.segmented() {
		last := len(s.Segments) - 1
		if last < 0 || s.Segments[last].Line != s.Line {
			s.Segments = append(s.Segments, Segment{Line: s.Line})
			last++
		}
		s.Segments[last].Serial = s.Line + s.Ahead
		s.Segments[last].Permits += n
	}
	return n
}

// Receipt returns the receipt of the permits that were taken last, at s.Line.
func (g *Schedule) Receipt(s *State) Receipt {
	if !g.segmented() {
		return Receipt{Line: s.Line, Taken: s.Missing + s.Refunded}
	}
	return Receipt{Line: s.Line + s.Ahead}
}

// anyGrant is a receipt with which [Schedule.Refund] gives permits of a bucket or fixed window back, whichever grants have
// taken them. It gives back nothing of a sliding window, which must know the segment.
var anyGrant = Receipt{Line: math.MaxInt64 / 2, Taken: math.MaxInt64 / 2}

// Refund gives back up to n permits of the grant with that receipt, and returns how many. The grant can be refunded once: a
// second refund of the same permits would give back those of others.
//
// As long as no line has passed since the grant, that is n. Later it is n or less: lines bring permits back in the order in which
// they were taken, and a grant is worth what they have not brought back of all that was taken up to it. What was refunded
// of any grant counts as brought back by then, so a refund gives back too little rather than too much. In a sliding window,
// permits can be given back as long as their segment counts, and until permits are taken in it after a [Schedule.GiveBack]
// from it.
func (g *Schedule) Refund(s *State, r Receipt, n int64) int64 {
	if g.segmented() {
		i, found := slices.BinarySearchFunc(s.Segments, r.Line, func(t Segment, serial int64) int { return cmp.Compare(t.Serial, serial) })
		if !found {
			return 0
		}
		n = max(min(n, s.Segments[i].Permits), 0)
		s.removeFrom(i, n)
		return n
	}
	worth := min(s.Missing-s.Floor, max(MaxDebt, g.Permits)-s.Refunded)
	if lines := max(s.Line-r.Line, 0); lines > 0 || r.Taken <= s.Barrier {
		worth = min(worth, r.Taken-saturate.Add(g.brought(lines), s.Refunded))
	}
	n = max(min(n, worth), 0)
	s.Missing -= n
	s.Refunded += n
	return n
}

// removeFrom takes n permits out of the segment with the index i, and drops the segment when it is empty.
func (s *State) removeFrom(i int, n int64) {
	s.Missing -= n
	s.Segments[i].Permits -= n
	switch {
	case s.Segments[i].Permits > 0:
	case i == 0:
		s.Segments = s.Segments[1:]
	default:
		s.Segments = slices.Delete(s.Segments, i, i+1)
	}
}

// GiveBack gives back up to n permits that are missing, of no grant in particular, and returns how many. For the grants before
// it, it is like a line. A sliding window gives back what was taken first or, while it owes permits, what was taken last.
func (g *Schedule) GiveBack(s *State, n int64) int64 {
	if !g.segmented() {
		if n = g.Refund(s, anyGrant, n); n > 0 {
			s.Barrier = s.Missing + s.Refunded
		}
		return n
	}
	n = max(min(n, s.Missing), 0)
	for left := n; left > 0; {
		i, part := 0, left
		if owed := s.Missing - g.Permits; owed > 0 {
			i, part = len(s.Segments)-1, min(left, owed)
		}
		part = min(part, s.Segments[i].Permits)
		if s.Segments[i].Line == s.Line {
			s.Ahead++ // what is taken from now on does not belong to the grants of this segment
		}
		s.removeFrom(i, part)
		left -= part
	}
	return n
}

// ReturnBlock gives back up to n unused permits of a block with that receipt, and returns how many. A token bucket accepts them
// only if nothing was taken since: the borrower grants the rest of the block until lines have brought it back, and if
// permits were given back in its middle, lines would bring the rest back sooner.
func (g *Schedule) ReturnBlock(s *State, r Receipt, n int64) int64 {
	if g.Kind != TokenBucket {
		return g.Refund(s, r, n)
	}
	lines := max(s.Line-r.Line, 0)
	if s.Missing == 0 || r.Taken-g.brought(lines) != s.Missing+s.Refunded {
		return 0
	}
	n = max(min(n, s.Missing), 0)
	s.Missing -= n
	s.Floor = min(s.Floor, s.Missing)
	return n
}

// LineOf returns the first line on which that many of the missing permits have come back: s.Line if none needs to.
func (g *Schedule) LineOf(s *State, permits int64) int64 {
	switch {
	case permits <= 0:
		return s.Line
	case g.Kind == FixedWindow:
		return s.Line + 1
	case g.Kind == TokenBucket:
		return saturate.Add(s.Line, (permits-1)/g.Refill+1)
	case permits <= s.Missing/2:
		for _, t := range s.Segments {
			if permits -= t.Permits; permits <= 0 {
				return t.Line + g.Segments
			}
		}
	}
	left := s.Missing - permits
	for i := len(s.Segments) - 1; i >= 0; i-- { //nolint:modernize // with slices.Backward the result has a name in the API
		if left -= s.Segments[i].Permits; left < 0 {
			return s.Segments[i].Line + g.Segments
		}
	}
	return s.Line + g.Segments
}

// Wait returns how long after now, the moment of s, n permits are available if no others are taken: 0 if they are. An n of 0
// counts as 1.
func (g *Schedule) Wait(s *State, now, n int64) int64 {
	over := max(n, 1) - g.Free(s)
	if over <= 0 {
		return 0
	}
	return max(g.TimeOf(g.LineOf(s, over))-now, 1)
}

// FullAt returns the moment from which s is a key that is full, and from which refunds are worth nothing: it can be forgotten
// then, and not before.
func (g *Schedule) FullAt(s *State) int64 { return g.TimeOf(g.LineOf(s, s.Missing+s.Refunded)) }

// Convert returns the state of g that follows s, a state of old, when g comes into force at the moment at, to which s was
// advanced. What was taken stays taken. If reached is true, the first line of g is at that moment and brings what a line
// brings. If the segments of a sliding window have changed, what was taken in an old one counts in the latest of the new ones
// that it can belong to. Nothing of earlier grants can be refunded.
func (g *Schedule) Convert(old *Schedule, s State, at int64, reached bool) State {
	next := State{Line: g.LineAt(at)}
	next.Ahead = max(s.Line+s.Ahead-next.Line+g.Segments, 0)
	switch {
	case g.segmented() && old.segmented():
		g.resegment(&next, old, s, at, reached)
	case g.segmented():
		g.add(&next, s.Missing)
	default:
		next.Missing, next.Floor = s.Missing, s.Floor
		if reached {
			next.Missing -= min(next.Missing, g.brought(1))
		}
		next.Floor = min(next.Floor, next.Missing)
		if g.Kind != TokenBucket || old.Kind != TokenBucket {
			next.Floor = 0
		}
		next.Refunded = max(s.Missing+s.Refunded-next.Missing, 0)
	}
	return next
}

// resegment moves what was taken into the segments of g.
func (g *Schedule) resegment(next *State, old *Schedule, s State, at int64, reached bool) {
	now := next.Line
	for _, t := range s.Segments {
		last := old.TimeOf(t.Line+1) - 1 // the last moment of the segment
		if t.Line == s.Line {
			last = at
			if reached { // a segment of g begins at that moment, and the permits were taken before it
				last--
			}
		}
		if next.Line = min(g.LineAt(last), now); next.Line > now-g.Segments {
			g.add(next, t.Permits)
		}
	}
	next.Line = now
}
