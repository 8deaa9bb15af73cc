package storetest

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/store/backend"
)

// A model has the expected state of each key that was used. Its time is the time in the server's answers.
type model map[target]backend.State

// check compares an answered batch with the model and advances the model. It returns what is wrong, or "".
func (m model) check(b *backend.Batch) string {
	k := target{b.Definition.Name, b.Key}
	s, ok := m[k]
	if !ok || fullAt(s) <= b.Now && s.Version != b.Definition.Version && b.Outcome == backend.Decided {
		s = b.Definition.InitialState(b.Now) // the server may have forgotten it, or not
	}
	outcome := backend.Decided
	switch {
	case s.Version > b.Definition.Version:
		outcome = backend.OutdatedDefinition
	case s.Version < b.Definition.Version:
		outcome = backend.OutdatedState
	}
	switch {
	case b.Outcome != outcome:
		return fmt.Sprintf("outcome %d, not %d", b.Outcome, outcome)
	case outcome == backend.OutdatedState:
		return differ(advanced(b.State, b.Now), advanced(s, b.Now))
	case outcome == backend.OutdatedDefinition && b.State.Version == s.Version:
		return ""
	case outcome == backend.OutdatedDefinition:
		return fmt.Sprintf("the newer version is %d, not %d", b.State.Version, s.Version)
	}
	want := make([]int64, len(b.Requests))
	m[k] = b.Definition.Decide(s, b.Now, b.Requests, want)
	if !slices.Equal(b.Granted, want) {
		return fmt.Sprintf("granted %v, not %v, from %+v at %d", b.Granted, want, s, b.Now)
	}
	return differ(b.State, m[k])
}

// differ returns how a state differs from the expected one, or "".
func differ(got, want backend.State) string {
	if got = tidy(got); sameState(got, tidy(want)) {
		return ""
	}
	return fmt.Sprintf("the state %+v, not %+v", got, want)
}

// tidy drops empty segments.
func tidy(s backend.State) backend.State {
	s.Taken = slices.DeleteFunc(slices.Clone(s.Taken), func(t backend.Segment) bool { return t.Permits == 0 })
	return s
}

// advanced returns a state at a moment, by its own schedule. A store may have written it earlier.
func advanced(s backend.State, now int64) backend.State {
	if s.Period <= 0 {
		return s
	}
	return s.Definition().Advance(s, now)
}

// receiptsOf carries out a batch request by request, and returns the receipt of each grant.
func receiptsOf(d *backend.Definition, before backend.State, now int64, requests []backend.Request) []backend.Receipt {
	list := make([]backend.Receipt, len(requests))
	s := d.Advance(before, now)
	previous := []int64{0}
	for i, r := range requests {
		if !r.IfPrevious || previous[0] != backend.Rejected {
			r.IfPrevious = false
			s = d.Decide(s, now, []backend.Request{r}, previous)
		}
		list[i] = receiptOf(s)
	}
	return list
}
