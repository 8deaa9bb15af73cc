package limiter

import "slices"

// A windowCut notes that a Charge gave back permits of the current segment. It bounds what the leases that were granted in
// the segment before it can still give back. All leases of a segment have the same tag, so each also remembers how many
// cuts there were when it was granted. An example, all in one segment:
//
//	TryAcquire(3)   a
//	Charge(-3)      a cut: 0 are left for the leases before it
//	TryAcquire(3)   b, whose owner knows of one cut
//	a.Refund()      gives back nothing, because a's permits have come back: those in the segment are b's
//	b.Refund()      gives back 3
type windowCut struct {
	line   int64 // where the segment begins
	number int64 // how many cuts there were, with this one: it is about leases that know of fewer
	left   int64 // how many permits in the segment those leases can still give back
}

// windowCuts are the cuts of a window, the oldest first.
type windowCuts struct {
	made  int64
	list  []windowCut
	line  int64         // the segment of the newest cut
	after *windowCharge // the owner of the grants in that segment after that cut; nil: there were none yet
}

// maxCuts is how many cuts are kept for a segment. When there are more, the two oldest become one, so that too little is
// given back rather than too much.
const maxCuts = 4

// cut adds a cut for the current segment, and forgets cuts of segments that have left the window.
func (w *SlidingWindow) cut() {
	if w.cuts == nil {
		w.cuts = new(windowCuts)
	}
	c, left := w.cuts, w.taken-w.takenBefore
	c.made++
	c.line, c.after = w.line, nil
	c.list = slices.DeleteFunc(c.list, func(old windowCut) bool {
		_, ok := w.ageOf(old.line)
		return !ok || old.line == w.line && old.left >= left // the new one says the same of its leases, or less
	})
	c.list = append(c.list, windowCut{line: w.line, number: c.made, left: left})
	if first := len(c.list) - maxCuts - 1; first >= 0 && c.list[first].line == w.line {
		c.list[first+1].left = min(c.list[first].left, c.list[first+1].left)
		c.list = slices.Delete(c.list, first, first+1)
	}
}

// leftOf returns how many permits the leases with that tag and that many cuts can give back, as far as cuts say it.
func (w *SlidingWindow) leftOf(tag, cuts int64) int64 {
	left := int64(never)
	for c := range w.cutsAbout(tag, cuts) {
		left = min(left, c.left)
	}
	return left
}

// lowerCuts notes that a lease with that tag and that many cuts has given back n permits.
func (w *SlidingWindow) lowerCuts(tag, cuts, n int64) {
	for c := range w.cutsAbout(tag, cuts) {
		c.left = max(c.left-n, 0)
	}
}

// cutsAbout yields the cuts that are about leases with that tag and that many cuts: later ones of the same segment.
// Segments of a former grid can have become one.
func (w *SlidingWindow) cutsAbout(tag, cuts int64) func(yield func(*windowCut) bool) {
	return func(yield func(*windowCut) bool) {
		if w.cuts == nil {
			return
		}
		age, ok := w.ageOf(tag)
		for i := range w.cuts.list {
			c := &w.cuts.list[i]
			if cutAge, in := w.ageOf(c.line); ok && in && c.number > cuts && cutAge == age && !yield(c) {
				return
			}
		}
	}
}

// cutsMade returns how many cuts there were.
func (w *SlidingWindow) cutsMade() int64 {
	if w.cuts == nil {
		return 0
	}
	return w.cuts.made
}

// afterCut returns the owner of a grant in the current segment, in which there was a cut.
func (w *SlidingWindow) afterCut() *windowCharge {
	if w.cuts.after == nil {
		w.cuts.after = &windowCharge{window: w, held: never, cuts: w.cuts.made}
	}
	return w.cuts.after
}
