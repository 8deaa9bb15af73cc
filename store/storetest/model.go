package storetest

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/store"
)

// A model is what a server must know: the state of each key that was ever asked for. It
// goes by the time that the server answered with.
type model map[target]store.State

// answered holds a batch that was answered against the model, which then knows what has
// happened. It returns what is wrong, "" if nothing is.
func (m model) answered(b *store.Batch) string {
	k := target{b.Definition.Name, b.Key}
	s, ok := m[k]
	if !ok || fullAt(s) <= b.Now && s.Version != b.Definition.Version && b.Outcome == store.Decided {
		s = b.Definition.Fresh(b.Now) // it may have been forgotten, or not
	}
	switch {
	case s.Version > b.Definition.Version:
		if wrong := mustBe(b, store.Outdated, "Outdated"); wrong != "" || b.State.Version == s.Version {
			return wrong
		}
		return fmt.Sprintf("the newer version is %d, not %d", b.State.Version, s.Version)
	case s.Version < b.Definition.Version:
		if wrong := mustBe(b, store.OldState, "OldState"); wrong != "" {
			return wrong
		}
		return differ(advanced(b.State, b.Now), advanced(s, b.Now))
	}
	if wrong := mustBe(b, store.Decided, "Decided"); wrong != "" {
		return wrong
	}
	want := make([]int64, len(b.Asks))
	m[k] = b.Definition.Decide(s, b.Now, b.Asks, want)
	if !slices.Equal(b.Granted, want) {
		return fmt.Sprintf("granted %v, not %v, from %+v at %d", b.Granted, want, s, b.Now)
	}
	return differ(b.State, m[k])
}

func mustBe(b *store.Batch, want store.Outcome, name string) string {
	if b.Outcome == want {
		return ""
	}
	return fmt.Sprintf("outcome %d, not %s", b.Outcome, name)
}

// differ says how a state differs from what it should be; "": it does not.
func differ(got, want store.State) string {
	if got = tidy(got); sameState(got, tidy(want)) {
		return ""
	}
	return fmt.Sprintf("the state %+v, not %+v", got, want)
}

// tidy leaves out segments in which nothing was taken.
func tidy(s store.State) store.State {
	s.Taken = slices.DeleteFunc(slices.Clone(s.Taken), func(t store.Segment) bool { return t.Permits == 0 })
	return s
}

// advanced is a state as it is at that moment, by its own grid. What stores keep of it may
// be from any earlier one.
func advanced(s store.State, now int64) store.State {
	d := store.Definition{
		Limits: store.Limits{Kind: s.Kind, Period: s.Period, Refill: s.Refill, Segments: s.Segments},
		Anchor: s.Anchor,
	}
	if s.Period <= 0 {
		return s
	}
	return d.Advance(s, now)
}

// marks plays a batch that was decided ask by ask, and returns the mark of each grant.
func marks(d *store.Definition, before store.State, now int64, asks []store.Ask) []store.Mark {
	list := make([]store.Mark, len(asks))
	s := d.Advance(before, now)
	previous := []int64{0}
	for i, a := range asks {
		if !a.IfPrevious || previous[0] != store.Rejected {
			a.IfPrevious = false
			s = d.Decide(s, now, []store.Ask{a}, previous)
		}
		list[i] = markOf(s)
	}
	return list
}
