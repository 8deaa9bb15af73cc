package storetest

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A model has the expected state of each key that was used. Its time is the time in the server's answers.
type model map[target]backend.State

// at returns a copy of the expected state of a key.
func (m model) at(d *backend.Definition, key string, now int64) backend.State {
	s, ok := m[target{d.Name, key}]
	if !ok || s.Version == d.Version && isFull(s.State) {
		return d.Stored(d.Full(now))
	}
	s.Segments = slices.Clone(s.Segments)
	return s
}

// check compares an answered batch with the model and advances the model. It returns what is wrong, or "".
func (m model) check(b *backend.Batch) string {
	d := b.Definition
	s := m.at(d, b.Key, b.Now)
	if fullAt(s) <= b.Now && s.Version != d.Version && b.Outcome == backend.Decided {
		s = d.Stored(d.Full(b.Now)) // the server may have forgotten it, or not
	}
	outcome := backend.Decided
	switch {
	case s.Version > d.Version:
		outcome = backend.OutdatedDefinition
	case s.Version < d.Version:
		outcome = backend.OutdatedState
	}
	switch {
	case b.Outcome != outcome:
		return fmt.Sprintf("outcome %d, not %d", b.Outcome, outcome)
	case outcome == backend.OutdatedState && b.Stored == nil:
		return "no stored state"
	case outcome == backend.OutdatedState:
		return differ(advanced(*b.Stored, b.Now), advanced(s, b.Now))
	case outcome == backend.OutdatedDefinition && b.Version == s.Version:
		return ""
	case outcome == backend.OutdatedDefinition:
		return fmt.Sprintf("the newer version is %d, not %d", b.Version, s.Version)
	}
	before := fmt.Sprintf("%+v", s)
	want := make([]int64, len(b.Requests))
	d.Decide(&s.State, b.Now, b.Requests, want)
	s = d.Stored(s.State) // a calendar can be in another window
	m[target{d.Name, b.Key}] = s
	if !slices.Equal(b.Granted, want) {
		return fmt.Sprintf("granted %v, not %v, from %s at %d", b.Granted, want, before, b.Now)
	}
	got := b.State
	if isFull(got) && isFull(s.State) {
		got.Line = s.Line // a store can forget it, and with it that a calendar was in the next window
	}
	return differ(d.Stored(got), s)
}

func isFull(s rate.State) bool { return s.Missing == 0 && s.Refunded == 0 }

// differ returns how a state differs from the expected one, or "".
func differ(got, want backend.State) string {
	if sameState(got, want) {
		return ""
	}
	return fmt.Sprintf("the state %+v, not %+v", got, want)
}

// advanced returns a state at a moment, by its own schedule. A store may have written it earlier.
func advanced(s backend.State, now int64) backend.State {
	if s.Schedule.Period > 0 {
		s.State = s.Schedule.Advanced(s.State, now)
	}
	return s
}

// receiptsOf carries out a batch request by request, and returns the receipt of each grant.
func receiptsOf(d *backend.Definition, before rate.State, now int64, requests []backend.Request) []rate.Receipt {
	list := make([]rate.Receipt, len(requests))
	previous := []int64{0}
	for i, r := range requests {
		if !r.IfPrevious || previous[0] != backend.Rejected {
			r.IfPrevious = false
			d.Decide(&before, now, []backend.Request{r}, previous)
		}
		list[i] = d.Receipt(&before)
	}
	return list
}
