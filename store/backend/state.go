package backend

import (
	"math"
	"slices"

	"github.com/weir-go/weir/internal/saturate"
)

// A Schedule is the part of a [Definition] that a state was stored under. It is stored with the state, so that the
// state can be converted when the definition has changed.
type Schedule struct {
	Version  int64
	Kind     Kind
	Anchor   int64
	Period   int64
	Refill   int64
	Segments int64
}

// Schedule returns what is stored with a state.
func (d *Definition) Schedule() Schedule {
	return Schedule{Version: d.Version, Kind: d.Kind, Anchor: d.Anchor, Period: d.Period, Refill: d.Refill, Segments: d.Segments}
}

// Definition returns a definition with the schedule g, and without permits. [Definition.Advance] and
// [Definition.FullAt] need no more of it.
func (g *Schedule) Definition() *Definition {
	return &Definition{
		Limits: Limits{Kind: g.Kind, Period: g.Period, Refill: g.Refill, Segments: g.Segments}, Version: g.Version, Anchor: g.Anchor,
	}
}

// A State is what a store keeps for one key of a bucket or window. A key without a stored state is full: see
// [Definition.InitialState].
type State struct {
	Schedule
	// Tick is the tick that the rest holds for.
	Tick int64
	// Missing is how many permits are missing from full; for a sliding window, the sum of Taken. It is above the limit
	// if the limit was lowered or more was charged than was available.
	Missing int64
	// RefundFloor is, for a token bucket, how far refunds can lower Missing: the permits below it are in blocks that
	// instances have borrowed, or were taken before a block. Like Missing, it falls by Refill on each tick.
	RefundFloor int64
	// Taken is, for a sliding window, what was taken in each segment that still counts, the oldest first, without empty
	// segments.
	Taken []Segment
}

// A Segment is what was taken in one segment of a sliding window. Tick is the tick with which the segment begins.
type Segment struct {
	Tick    int64
	Permits int64
}

// A Request takes permits of a key, or gives permits back.
//
// Usually Min and Max are equal: that many permits, or none. With a larger Max, it takes as many as are available, at
// least Min. With Min == 0 and Max == 0 it asks whether any permit is available.
type Request struct {
	Op       Op
	Min, Max int64
	// IfPrevious, if true, rejects this request if the one before it in the batch was rejected. It keeps callers in a
	// queue in order.
	IfPrevious bool
	// Block, for OpTake only, takes the permits as a block that an instance grants by itself.
	Block bool
	// Receipt, for OpRefund and OpReturnBlock, is the receipt of the grant.
	Receipt Receipt
}

// An Op is what a [Request] does. The zero Op takes permits.
type Op uint8

// The operations.
const (
	// OpTake takes Min to Max permits, or is rejected.
	OpTake Op = iota
	// OpCharge takes Max permits even if they are not available.
	OpCharge
	// OpRefund gives back up to Max permits of the grant that Receipt is of, as far as time has not restored them. It
	// is never rejected.
	OpRefund
	// OpReturnBlock gives back up to Max unused permits of a block. A token bucket accepts them only if nothing was
	// taken since.
	OpReturnBlock
)

// A Receipt identifies a grant by [State.Tick] and [State.Missing] right after it.
type Receipt struct {
	Tick    int64
	Missing int64
}

// Rejected stands in Batch.Granted for a [Request] that was rejected.
const Rejected int64 = -1

// InitialState returns the state of a key without a stored state.
func (d *Definition) InitialState(now int64) State {
	return State{Schedule: d.Schedule(), Tick: d.TickAt(now)}
}

// Decide is what a store does with a key: it advances s, which must be of d's Version, to now, carries out the requests
// in order, and returns the new state. It sets granted to what each request was granted or gave back, or to [Rejected].
//
// Stores in Go can call it, as the one in package storetest does. Stores with their own scripts are tested against it.
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

// maxDebt bounds Missing, so that every store can compute with it.
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

// refund gives back no more than is certain to be missing because of the grant: ticks since then have restored what was
// missing for longest.
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

// returnBlock gives back permits of a block. The borrower can use the rest of the block until ticks have restored it.
// If others got returned permits from the middle of the bucket, those would be restored too early; therefore, only the
// newest permits are accepted.
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

// refundSegment gives permits back to the segment in which they were taken, if it still counts.
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

// Advance returns s at the moment now. If the server's clock has stepped back behind s, the state moves back with it:
// what is missing stays missing, and comes back at its pace by the new time.
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

// slide returns the segments that still count at a tick, moved back by so many ticks.
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

// refill returns the most that comes back on a tick.
func (d *Definition) refill() int64 {
	if d.Refill == 0 {
		return math.MaxInt64
	}
	return d.Refill
}

// Wait returns how many µs after now n permits will be available if no others are taken; 0 if they are available now. n
// == 0 counts as 1. s must hold for now.
func (d *Definition) Wait(s State, now, n int64) int64 {
	over := s.Missing + max(n, 1) - d.Permits
	if over <= 0 {
		return 0
	}
	return max(d.TickTime(d.tickOf(s, over))-now, 1)
}

// tickOf returns the tick on which so many permits have come back.
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

// FullAt returns the moment, in µs of the server's clock, from which s is equal to the initial state. The store can
// forget s then, and not before.
func (d *Definition) FullAt(s State) int64 {
	if s.Missing <= 0 {
		return d.TickTime(s.Tick)
	}
	return d.TickTime(d.tickOf(s, s.Missing))
}
