package simulate

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// A Comparison is two results beside each other, such as of two configurations under the same load. Make one with
// [Compare]. Its JSON form is for programs, and has durations in nanoseconds.
type Comparison struct {
	// Before and After are the results. Tables and pictures call them by their Name; without one, "before" and "after".
	Before *Result `json:"before"`
	After  *Result `json:"after"`
	// OneByOne reports whether requests can be compared one by one: both loads are open or recordings, with the same For,
	// Seed and number of requests. In a closed load, when a request is sent depends on the answer to the one before it.
	OneByOne bool `json:"one_by_one"`
	// NewlyRefused is how many requests succeeded in Before and do not in After. A request counts as refused if it did not
	// succeed in the end, however often its client tried and whatever the error was. It is 0 if OneByOne is false.
	NewlyRefused int64 `json:"newly_refused"`
	// NoLongerRefused is how many requests did not succeed in Before and do in After. It is 0 if OneByOne is false.
	NoLongerRefused int64 `json:"no_longer_refused"`
	// Losers are the keys of which fewer executions are admitted in After, the greatest loss first, at most ten.
	Losers []KeyChange `json:"losers,omitempty"`
	// Winners are the keys of which more executions are admitted in After, the greatest gain first, at most ten.
	Winners []KeyChange `json:"winners,omitempty"`
}

// A KeyChange is what a key got before and after. Offered and admitted are those of [Counts].
type KeyChange struct {
	// Key is the key.
	Key string `json:"key"`
	// OfferedBefore is how many executions the key had before, and OfferedAfter how many it has after.
	OfferedBefore int64 `json:"offered_before"`
	OfferedAfter  int64 `json:"offered_after"`
	// AdmittedBefore is how many of them were admitted before, and AdmittedAfter how many are after.
	AdmittedBefore int64 `json:"admitted_before"`
	AdmittedAfter  int64 `json:"admitted_after"`
}

func (k *KeyChange) change() int64 { return k.AdmittedAfter - k.AdmittedBefore }

// Compare compares two results of [Run], which must not be nil. With a Result that was decoded from JSON, OneByOne is false
// and there are no Losers and Winners: the JSON form does not have each request and each key.
func Compare(before, after *Result) *Comparison {
	c := &Comparison{Before: before, After: after}
	c.OneByOne = before.open && after.open && before.For == after.For && before.Seed == after.Seed && before.Total.Requests == after.Total.Requests
	if c.OneByOne {
		c.NewlyRefused = before.satisfied.without(after.satisfied)
		c.NoLongerRefused = after.satisfied.without(before.satisfied)
	}
	c.compareKeys()
	return c
}

func (c *Comparison) compareKeys() {
	const most = 10
	if c.Before.keyed == nil || c.After.keyed == nil {
		return // all keys of the other one would have won or lost everything
	}
	changes := map[string]KeyChange{}
	for key, n := range c.Before.keyed {
		changes[key] = KeyChange{Key: key, OfferedBefore: n.offered, AdmittedBefore: n.admitted}
	}
	for key, n := range c.After.keyed {
		k := changes[key]
		k.Key, k.OfferedAfter, k.AdmittedAfter = key, n.offered, n.admitted
		changes[key] = k
	}
	order := slices.SortedFunc(maps.Values(changes), func(a, b KeyChange) int {
		return cmp.Or(cmp.Compare(a.change(), b.change()), strings.Compare(a.Key, b.Key))
	})
	for i, k := range order[:min(most, len(order))] {
		if k.change() < 0 {
			c.Losers = append(c.Losers, k)
		}
		if k := order[len(order)-1-i]; k.change() > 0 {
			c.Winners = append(c.Winners, k)
		}
	}
}
