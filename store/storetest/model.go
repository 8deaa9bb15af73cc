package storetest

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/store/backend"
)

// A model is what a server must know: the state of each key that was ever asked for. It
// goes by the time that the server answered with.
type model map[target]backend.State

// answered holds a batch that was answered against the model, which then knows what has
// happened. It returns what is wrong, "" if nothing is.
func (m model) answered(b *backend.Batch) string {
	k := target{b.Definition.Name, b.Key}
	s, ok := m[k]
	if !ok || fullAt(s) <= b.Now && s.Version != b.Definition.Version && b.Outcome == backend.Decided {
		s = b.Definition.InitialState(b.Now) // it may have been forgotten, or not
	}
	switch {
	case s.Version > b.Definition.Version:
		if wrong := mustBe(b, backend.OutdatedDefinition, "Outdated"); wrong != "" || b.State.Version == s.Version {
			return wrong
		}
		return fmt.Sprintf("the newer version is %d, not %d", b.State.Version, s.Version)
	case s.Version < b.Definition.Version:
		if wrong := mustBe(b, backend.OutdatedState, "OldState"); wrong != "" {
			return wrong
		}
		return differ(advanced(b.State, b.Now), advanced(s, b.Now))
	}
	if wrong := mustBe(b, backend.Decided, "Decided"); wrong != "" {
		return wrong
	}
	want := make([]int64, len(b.Requests))
	m[k] = b.Definition.Decide(s, b.Now, b.Requests, want)
	if !slices.Equal(b.Granted, want) {
		return fmt.Sprintf("granted %v, not %v, from %+v at %d", b.Granted, want, s, b.Now)
	}
	return differ(b.State, m[k])
}

func mustBe(b *backend.Batch, want backend.Outcome, name string) string {
	if b.Outcome == want {
		return ""
	}
	return fmt.Sprintf("outcome %d, not %s", b.Outcome, name)
}

// differ says how a state differs from what it should be; "": it does not.
func differ(got, want backend.State) string {
	if got = tidy(got); sameState(got, tidy(want)) {
		return ""
	}
	return fmt.Sprintf("the state %+v, not %+v", got, want)
}

// tidy leaves out segments in which nothing was taken.
func tidy(s backend.State) backend.State {
	s.Taken = slices.DeleteFunc(slices.Clone(s.Taken), func(t backend.Segment) bool { return t.Permits == 0 })
	return s
}

// advanced is a state as it is at that moment, by its own grid. What stores keep of it may
// be from any earlier one.
func advanced(s backend.State, now int64) backend.State {
	d := backend.Definition{
		Limits: backend.Limits{Kind: s.Kind, Period: s.Period, Refill: s.Refill, Segments: s.Segments},
		Anchor: s.Anchor,
	}
	if s.Period <= 0 {
		return s
	}
	return d.Advance(s, now)
}

// marks plays a batch that was decided ask by ask, and returns the mark of each grant.
func marks(d *backend.Definition, before backend.State, now int64, asks []backend.Request) []backend.Receipt {
	list := make([]backend.Receipt, len(asks))
	s := d.Advance(before, now)
	previous := []int64{0}
	for i, a := range asks {
		if !a.IfPrevious || previous[0] != backend.Rejected {
			a.IfPrevious = false
			s = d.Decide(s, now, []backend.Request{a}, previous)
		}
		list[i] = markOf(s)
	}
	return list
}
