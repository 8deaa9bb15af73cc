package backend

import (
	"math"
	"slices"

	"github.com/weir-go/weir/internal/saturate"
)

// A Schedule is the part of a [Definition] that a stored state was last written under.
// With it a state can be understood when the definition has changed since.
type Schedule struct {
	Version  int64
	Kind     Kind
	Anchor   int64
	Period   int64
	Refill   int64
	Segments int64
}

// Schedule returns what is to be stored with a state.
func (d *Definition) Schedule() Schedule {
	return Schedule{Version: d.Version, Kind: d.Kind, Anchor: d.Anchor, Period: d.Period, Refill: d.Refill, Segments: d.Segments}
}

// A State is what a store keeps for one key of a bucket or a window. A key without a
// stored state is full: [Definition.Fresh].
type State struct {
	Schedule
	// Tick is the number of the grid line that the rest is right for.
	Tick int64
	// Missing is how many permits are missing from full; of a sliding window: the sum
	// of Taken. It is above the limit after that was lowered, and where more was
	// charged than there was.
	Missing int64
	// RefundFloor is, for a token bucket, how many of the missing permits count as lent to
	// instances that give them out themselves, and to whatever was taken before them:
	// no refund goes below it. Like Missing it falls by Refill on each line.
	RefundFloor int64
	// Taken is, for a sliding window, what was taken in each segment that counts still,
	// the oldest first, without those in which nothing was.
	Taken []Segment
}

// A Segment is what was taken in one segment of a sliding window, by the number of the
// line that it begins with.
type Segment struct {
	Tick    int64
	Permits int64
}

// An Request is one question about a key, or something to be given back to it.
//
// Usually Min and Max are the same: so many permits, or none. A larger Max takes as
// many as there are, at least Min. Min == 0 && Max == 0 asks whether anything is left.
type Request struct {
	Op       Op
	Min, Max int64
	// IfPrevious: if the ask before it in the batch was rejected, so is this one. Those
	// who wait in a queue are asked for so.
	IfPrevious bool
	// Block: Take only: the permits are for an instance that gives them out itself.
	Block bool
	// Receipt is, for Refund and Return, the mark of the grant.
	Receipt Receipt
}

// An Op is what an [Request] is about. The zero Op takes.
type Op uint8

// What can be asked.
const (
	// OpTake takes Min to Max permits, or is rejected.
	OpTake Op = iota
	// OpCharge takes Max permits, whether they are there or not.
	OpCharge
	// OpRefund gives back up to Max permits of the grant that Mark is of, as far as they
	// have not come back by themselves. It is never rejected.
	OpRefund
	// OpReturnBlock gives back up to Max permits that were lent (Take with Lend) and are
	// unused. Of a token bucket only if nobody has taken any since.
	OpReturnBlock
)

// A Receipt says where a grant's permits are missing: [State.Line] and [State.Missing]
// right after it.
type Receipt struct {
	Tick    int64
	Missing int64
}

// Rejected is in place of the number of permits where an [Request] was rejected.
const Rejected int64 = -1

// InitialState returns the state of a key that the store has no state of.
func (d *Definition) InitialState(now int64) State {
	return State{Schedule: d.Schedule(), Tick: d.TickAt(now)}
}

// Decide is what a store does with a key: it lets the time up to now go by in s, asks
// what is asked in that order, and returns the state after it. granted is filled with
// what was granted, or given back: [Rejected] where nothing was. s must be of d's Version.
//
// It is here for stores that reckon in Go, as the one in package storetest does, and it is
// what those that reckon in a script of their own are compared with.
func (d *Definition) Decide(s State, now int64, asks []Request, granted []int64) State {
	s = d.Advance(s, now)
	previous := int64(0)
	for i, a := range asks {
		if a.IfPrevious && previous == Rejected {
			granted[i] = Rejected
			continue
		}
		granted[i] = d.decide(&s, a)
		previous = granted[i]
	}
	return s
}

func (d *Definition) decide(s *State, a Request) int64 {
	a.Min, a.Max = max(a.Min, 0), max(a.Max, 0)
	switch a.Op {
	case OpCharge:
		return d.add(s, min(a.Max, maxDebt-s.Missing))
	case OpRefund:
		return d.refund(s, a)
	case OpReturnBlock:
		return d.returnBlock(s, a)
	}
	free := d.Permits - s.Missing
	if free < max(a.Min, 1) {
		return Rejected
	}
	taken := d.add(s, min(a.Max, free))
	if a.Block && d.Refill > 0 {
		s.RefundFloor = s.Missing
	}
	return taken
}

// maxDebt leaves every store room to reckon with.
const maxDebt = 2 * MaxPermits

func (d *Definition) add(s *State, n int64) int64 {
	n = max(n, 0)
	s.Missing += n
	if d.Kind != KindSlidingWindow || n == 0 {
		return n
	}
	if last := len(s.Taken) - 1; last >= 0 && s.Taken[last].Tick == s.Tick {
		taken := append([]Segment(nil), s.Taken...)
		taken[last].Permits += n
		s.Taken = taken
		return n
	}
	s.Taken = append(slices.Clip(s.Taken), Segment{Tick: s.Tick, Permits: n})
	return n
}

// refund gives back no more than is certain to be missing because of the grant: the
// lines since then have paid for the oldest of what was missing first.
func (d *Definition) refund(s *State, a Request) int64 {
	if d.Kind == KindSlidingWindow {
		return s.refundSegment(a)
	}
	unpaid := a.Receipt.Missing
	if lines := s.Tick - a.Receipt.Tick; lines > 0 {
		unpaid -= saturate.Mul(lines, d.refill())
	}
	n := max(min(a.Max, unpaid, s.Missing-s.RefundFloor), 0)
	s.Missing -= n
	return n
}

// returnBlock takes a loan back. The borrower may use what it keeps of it only as long as
// the lines have not paid for it; were others to get what is given back in the middle
// of the bucket, they would be paid for earlier than that.
func (d *Definition) returnBlock(s *State, a Request) int64 {
	if d.Refill == 0 {
		return d.refund(s, a)
	}
	lines := max(s.Tick-a.Receipt.Tick, 0)
	if s.Missing == 0 || a.Receipt.Missing-saturate.Mul(lines, d.Refill) != s.Missing {
		return 0
	}
	n := min(a.Max, s.Missing)
	s.Missing -= n
	s.RefundFloor = min(s.RefundFloor, s.Missing)
	return n
}

// refundSegment gives back to the segment in which it was taken, if that counts still.
func (s *State) refundSegment(a Request) int64 {
	for i, t := range s.Taken {
		if t.Tick != a.Receipt.Tick {
			continue
		}
		n := min(a.Max, t.Permits)
		taken := append([]Segment(nil), s.Taken...)
		taken[i].Permits -= n
		if taken[i].Permits == 0 {
			taken = append(taken[:i], taken[i+1:]...)
		}
		s.Taken = taken
		s.Missing -= n
		return n
	}
	return 0
}

// Advance lets the time up to now go by. If the server's clock has stepped back behind
// the state's line, the state is moved back with it: what is missing stays missing, and
// nobody waits for the old time to come again.
func (d *Definition) Advance(s State, now int64) State {
	line := d.TickAt(now)
	lines := line - s.Tick
	if d.Kind == KindSlidingWindow {
		s.Taken = d.slide(s.Taken, line, min(lines, 0))
		s.Missing = 0
		for _, t := range s.Taken {
			s.Missing += t.Permits
		}
	} else if lines > 0 {
		paid := saturate.Mul(lines, d.refill())
		s.Missing = max(s.Missing-paid, 0)
		s.RefundFloor = max(s.RefundFloor-paid, 0)
	}
	s.Tick = line
	return s
}

// slide returns what counts still at a line, moved back by so many lines.
func (d *Definition) slide(taken []Segment, line, back int64) []Segment {
	var kept []Segment
	for _, t := range taken {
		t.Tick += back
		if t.Tick > line-d.Segments {
			kept = append(kept, t)
		}
	}
	return kept
}

// refill is how many permits come back on a line at the most.
func (d *Definition) refill() int64 {
	if d.Refill == 0 {
		return math.MaxInt64
	}
	return d.Refill
}

// Wait returns how many microseconds after now n permits will be free if nobody takes
// any meanwhile; 0 if they are. n == 0 stands for 1. s is right for now.
func (d *Definition) Wait(s State, now, n int64) int64 {
	over := s.Missing + max(n, 1) - d.Permits
	if over <= 0 {
		return 0
	}
	return max(d.TickTime(d.tickOf(s, over))-now, 1)
}

// tickOf is the line on which as many permits have come back.
func (d *Definition) tickOf(s State, permits int64) int64 {
	switch {
	case d.Kind != KindSlidingWindow && d.Refill == 0:
		return s.Tick + 1
	case d.Kind != KindSlidingWindow:
		return saturate.Add(s.Tick, (permits-1)/d.Refill+1)
	}
	for _, t := range s.Taken {
		if permits -= t.Permits; permits <= 0 {
			return t.Tick + d.Segments
		}
	}
	return s.Tick + d.Segments
}

// FullAt is the moment at which a state says no more than none would, in µs of the server's
// clock: the store may forget it then, and not before.
func (d *Definition) FullAt(s State) int64 {
	if s.Missing <= 0 {
		return d.TickTime(s.Tick)
	}
	return d.TickTime(d.tickOf(s, s.Missing))
}
