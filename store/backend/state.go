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

// Definition returns a definition with the schedule g and without permits, which is enough for [Definition.Advance] and
// [Definition.FullAt].
func (g *Schedule) Definition() *Definition {
	return &Definition{
		Limits: Limits{Kind: g.Kind, Period: g.Period, Refill: g.Refill, Segments: g.Segments}, Version: g.Version, Anchor: g.Anchor,
	}
}

// TickTime returns when a tick is reached, in µs of the server's clock.
func (g *Schedule) TickTime(tick int64) int64 { return tickTime(g.Anchor, g.Period, tick) }

// TickAt returns the last tick that is reached at the moment t.
func (g *Schedule) TickAt(t int64) int64 { return floorDiv(t-g.Anchor, g.Period) }

// A State is what a store keeps for one key of a bucket or window. A key without a stored state is full: see
// [Definition.InitialState].
type State struct {
	Schedule
	// Tick is the tick for which Missing, RefundFloor and Taken hold.
	Tick int64
	// Missing is how many permits are missing from full; for a sliding window, the sum of Taken. It is above the limit
	// if the limit was lowered or more was charged than was available.
	Missing int64
	// RefundFloor is, for a token bucket, the smallest value to which a refund can lower Missing. When an instance borrows
	// a block, RefundFloor is set to Missing: until ticks have restored the block, the instance grants its permits, so a
	// refund must not restore them. Like Missing, RefundFloor falls by Refill on each tick.
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
	// OpRefund gives back up to Max permits of the grant that Receipt identifies, except permits that time has restored.
	// It is never rejected. See also [AnyGrant].
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

// AnyGrant returns a receipt with which [OpRefund] gives back up to Max permits of a bucket or fixed window, whichever
// grants have taken them; see also [State.RefundFloor]. A sliding window must know the segment, so such a request gives
// back nothing. Stores need no code for it: its Tick is later than that of any state, and its Missing is not less.
func AnyGrant() Receipt { return Receipt{Tick: 1 << 60, Missing: maxDebt} }

// Rejected stands in Batch.Granted for a [Request] that was rejected.
const Rejected int64 = -1

// InitialState returns the state of a key without a stored state.
func (d *Definition) InitialState(now int64) State {
	return State{Schedule: d.Schedule(), Tick: d.TickAt(now)}
}

// Decide returns the state of a key after some requests: it advances s, which must be of d's Version, to now, and carries
// out the requests in order. It sets granted to what each request was granted or gave back, or to [Rejected].
//
// Stores in Go can call it, as the one in package storetest does. Stores with their own scripts are tested against it.
func (d *Definition) Decide(s State, now int64, requests []Request, granted []int64) State {
	s = d.Advance(s, now)
	previous := int64(0)
	for i, r := range requests {
		if r.IfPrevious && previous == Rejected {
			granted[i] = Rejected
			continue
		}
		granted[i] = d.decide(&s, r)
		previous = granted[i]
	}
	return s
}

func (d *Definition) decide(s *State, r Request) int64 {
	r.Min, r.Max = max(r.Min, 0), max(r.Max, 0)
	switch r.Op {
	case OpCharge:
		return d.take(s, min(r.Max, maxDebt-s.Missing))
	case OpRefund:
		return d.refund(s, r)
	case OpReturnBlock:
		return d.returnBlock(s, r)
	}
	free := d.Permits - s.Missing
	if free < max(r.Min, 1) {
		return Rejected
	}
	taken := d.take(s, min(r.Max, free))
	if r.Block && d.Refill > 0 {
		s.RefundFloor = s.Missing
	}
	return taken
}

// maxDebt bounds Missing, so that every store can compute with it.
const maxDebt = 2 * MaxPermits

// take adds n to what is missing. Taken is copied, because other states can share it.
func (d *Definition) take(s *State, n int64) int64 {
	n = max(n, 0)
	s.Missing += n
	if d.Kind != KindSlidingWindow || n == 0 {
		return n
	}
	if last := len(s.Taken) - 1; last >= 0 && s.Taken[last].Tick == s.Tick {
		s.Taken = slices.Clone(s.Taken)
		s.Taken[last].Permits += n
	} else {
		s.Taken = append(slices.Clip(s.Taken), Segment{Tick: s.Tick, Permits: n})
	}
	return n
}

// refund gives back what is still missing because of the grant. Ticks first restore the permits that were missing before
// the grant, and then those of the grant.
func (d *Definition) refund(s *State, r Request) int64 {
	if d.Kind == KindSlidingWindow {
		return s.refundSegment(r)
	}
	missing := r.Receipt.Missing
	if ticks := s.Tick - r.Receipt.Tick; ticks > 0 {
		missing -= saturate.Mul(ticks, d.refill())
	}
	n := max(min(r.Max, missing, s.Missing-s.RefundFloor), 0)
	s.Missing -= n
	return n
}

// returnBlock gives back permits of a block. For a token bucket, only the newest permits are accepted. The instance that
// borrowed the block grants the rest of it until ticks have restored it. If permits were returned from the middle, ticks
// would restore the rest of the block earlier than the instance assumes.
func (d *Definition) returnBlock(s *State, r Request) int64 {
	if d.Refill == 0 {
		return d.refund(s, r)
	}
	ticks := max(s.Tick-r.Receipt.Tick, 0)
	if s.Missing == 0 || r.Receipt.Missing-saturate.Mul(ticks, d.Refill) != s.Missing {
		return 0
	}
	n := min(r.Max, s.Missing)
	s.Missing -= n
	s.RefundFloor = min(s.RefundFloor, s.Missing)
	return n
}

// refundSegment gives permits back to the segment in which they were taken, if it still counts.
func (s *State) refundSegment(r Request) int64 {
	i := slices.IndexFunc(s.Taken, func(t Segment) bool { return t.Tick == r.Receipt.Tick })
	if i < 0 {
		return 0
	}
	n := min(r.Max, s.Taken[i].Permits)
	s.Missing -= n
	s.Taken = slices.Clone(s.Taken)
	if s.Taken[i].Permits -= n; s.Taken[i].Permits == 0 {
		s.Taken = slices.Delete(s.Taken, i, i+1)
	}
	return n
}

// Advance returns s at the moment now. If the server's clock has stepped back behind s, the state moves back with the
// clock: the same permits are missing, and each comes back after as many ticks as before the step.
func (d *Definition) Advance(s State, now int64) State {
	tick := d.TickAt(now)
	passed := tick - s.Tick
	if d.Kind == KindSlidingWindow {
		s.Taken = d.slide(s.Taken, tick, min(passed, 0))
		s.Missing = 0
		for _, t := range s.Taken {
			s.Missing += t.Permits
		}
	} else if passed > 0 {
		restored := saturate.Mul(passed, d.refill())
		s.Missing = max(s.Missing-restored, 0)
		s.RefundFloor = max(s.RefundFloor-restored, 0)
	}
	s.Tick = tick
	return s
}

// slide moves the segments by a number of ticks and returns the segments that still count at a tick.
func (d *Definition) slide(taken []Segment, tick, by int64) []Segment {
	var kept []Segment
	for _, t := range taken {
		t.Tick += by
		if t.Tick > tick-d.Segments {
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
// == 0 counts as 1. s must be the state at now.
func (d *Definition) Wait(s State, now, n int64) int64 {
	over := s.Missing + max(n, 1) - d.Permits
	if over <= 0 {
		return 0
	}
	return max(d.TickTime(d.tickOfReturn(s, over))-now, 1)
}

// tickOfReturn returns the first tick on which at least the given number of missing permits have come back.
func (d *Definition) tickOfReturn(s State, permits int64) int64 {
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

// FullAt returns the moment, in µs of the server's clock, from which s is equal to the initial state. The store must keep
// s until that moment and can forget it afterwards.
func (d *Definition) FullAt(s State) int64 {
	if s.Missing <= 0 {
		return d.TickTime(s.Tick)
	}
	return d.TickTime(d.tickOfReturn(s, s.Missing))
}
