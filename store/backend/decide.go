package backend

import "github.com/weir-go/weir/rate"

// A State is what a store keeps for one key of a bucket or window: a rate.State without Barrier and Ahead, which are always 0,
// and what is needed to convert it when the definition has changed. A key without a stored state is full. A store must keep a
// state until Schedule.FullAt, and can forget it afterwards.
type State struct {
	Version  int64         // of the definition
	Schedule rate.Schedule // of the definition, or the window of a calendar, with Permits 0
	rate.State
}

// Stored returns a state of a key as it is stored: with d's version and schedule, or the window that a calendar has at that time.
func (d *Definition) Stored(s rate.State) State {
	g := d.Window(s.Line)
	g.Permits = 0
	return State{Version: d.Version, Schedule: g, State: s}
}

// Convert converts s, which was stored under an older definition, to a state of d. Permits that were granted stay
// granted. Stores do not convert states; they report [OutdatedState].
//
// First, s is advanced by its old schedule to the moment at which d came into force; see [rate.Schedule.Convert] for the rest.
func (d *Definition) Convert(s State) State {
	if !s.Schedule.Usable() {
		return d.Stored(d.Full(d.Version)) // the schedule of s is broken, so the key starts full
	}
	at := max(d.startTime(&s), s.Schedule.TimeOf(s.Line))
	next := d.Schedule.Convert(&s.Schedule, s.Schedule.Advanced(s.State, at), at, d.AnchorInForce && d.Anchor == at)
	forgetGivenBack(&next)
	return d.Stored(next)
}

// startTime returns when d came into force. Usually that is d.Version. If the server's clock had stepped back, d.Version
// is the version before plus one and says nothing about time; startTime returns the time of s.
func (d *Definition) startTime(s *State) int64 {
	switch {
	case d.AnchorInForce:
		return d.Anchor
	case d.Version == s.Version+1:
		return s.Schedule.TimeOf(s.Line)
	}
	return d.Version
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
	Receipt rate.Receipt
}

// An Op is what a [Request] does. The zero Op takes permits. Only OpTake can be rejected.
type Op uint8

// The operations.
const (
	OpTake        Op = iota // takes Min to Max permits: [rate.Schedule.Take], TakeBlock
	OpCharge                // takes Max permits even if they are not available: [rate.Schedule.Charge]
	OpRefund                // gives back up to Max permits of a grant: [rate.Schedule.Refund]
	OpReturnBlock           // gives back up to Max unused permits of a block: [rate.Schedule.ReturnBlock]
	OpGiveBack              // gives back up to Max permits of no grant in particular: [rate.Schedule.GiveBack]
)

// Rejected stands in Batch.Granted for a [Request] that was rejected.
const Rejected int64 = -1

// Decide advances a state of d to now, and carries out the requests in order. It sets granted to what each request was granted
// or gave back, or to [Rejected]. The Segments of s are changed in place.
//
// Stores in Go can call it, as the one in package storetest does. Stores with their own scripts are tested against it.
func (d *Definition) Decide(s *rate.State, now int64, requests []Request, granted []int64) {
	d.Advance(s, now)
	forgetGivenBack(s)
	previous := int64(0)
	for i, r := range requests {
		if !r.IfPrevious || previous != Rejected {
			previous = d.decide(s, r)
		}
		granted[i] = previous
	}
}

func (d *Definition) decide(s *rate.State, r Request) (granted int64) {
	least, most := max(r.Min, 0), max(r.Max, 0)
	switch r.Op {
	case OpCharge:
		return d.Charge(s, most)
	case OpRefund:
		return d.Refund(s, r.Receipt, most)
	case OpReturnBlock:
		return d.ReturnBlock(s, r.Receipt, most)
	case OpGiveBack:
		granted = d.GiveBack(s, most)
		forgetGivenBack(s)
		return granted
	}
	take := d.Take
	if r.Block {
		take = d.TakeBlock
	}
	granted, ok := take(s, least, most)
	if !ok {
		return Rejected
	}
	return granted
}

// forgetGivenBack drops what is not stored. So a grant can be refunded although its permits have come back by OpGiveBack.
func forgetGivenBack(s *rate.State) {
	s.Barrier, s.Ahead = 0, 0
	for i := range s.Segments {
		s.Segments[i].Serial = s.Segments[i].Line
	}
}
