// Package window has the arithmetic of windows for jobs: what has begun in them, which places are reserved, and how the keys of a
// dynamic window share its capacity. It has neither a clock nor a lock. Times are in µs since the epoch.
package window

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Rules are the limits of a window, as jobs.Definition describes them.
type Rules struct {
	Bucket  int64 // the length of a bucket, µs
	Buckets int64
	Limit   int64   // of a key
	Shares  *Shares // nil: it is no dynamic window
}

// Interval returns the length of the window.
func (r Rules) Interval() int64 { return r.Bucket * r.Buckets }

// Shares say how the keys of a dynamic window share its capacity.
type Shares struct {
	Capacity int64 // 0: none
	Min, Max int64
	Keys     int64 // how many may take part
	AtOnce   bool
}

// A Window is the state of a window limiter, or of one key of a dynamic window. For each bucket, it has the number of
// executions that began in it and of waiting jobs with a reservation in it. Bucket n begins n times Rules.Bucket after the epoch.
//
// The window that ends at bucket n has the buckets n-Buckets+1 to n. Invariant: the executions that began in the window
// that ends at n, when one begins in n, are at most the limit.
//
// Reservations only say when a job comes back. The limit is checked again when the job starts, so that a late job or a
// lowered limit never leads to too many executions. A job whose reservation is due comes before one without. Some time after
// its bucket has begun a reservation lapses, so that no place is kept for a job that does not come.
type Window struct {
	Rules
	Filled  []Bucket // in order
	Changed bool     // since it was read

	now          int64  // the current bucket
	searchedFrom int64  // where the last search began
	foundFree    int64  // what it found: no bucket between the two is free; 0: no search
	group        *group // of a key of a dynamic window
	index        int    // of the key in the group
}

// A Bucket is what a window counts in one of its buckets.
type Bucket struct {
	At       int64 // the number of the bucket
	Started  int64
	Reserved int64
}

// PresentLimit returns the limit of the present window: 0 if its key cannot take part, because too many others do.
func (w *Window) PresentLimit() int64 {
	limit, _ := w.limitAt(w.now)
	return limit
}

// limitAt returns the limit in the window that ends at a bucket. ok is false if the key does not take part in it and cannot
// join, because too many others do.
func (w *Window) limitAt(at int64) (limit int64, ok bool) {
	if w.group == nil {
		return w.Rules.Limit, true
	}
	return w.group.keyLimit(w.index, at)
}

// Started returns how many executions began in the present window.
func (w *Window) Started() int64 { return w.started(w.now) }

// Reserved returns how many places are reserved.
func (w *Window) Reserved() (n int64) {
	for _, b := range w.Filled {
		n += b.Reserved
	}
	return n
}

// Admits reports whether an execution may begin now. due says that the job had a reservation for now or before, which was
// withdrawn: then only executions count, not the reservations of others.
func (w *Window) Admits(due bool) bool {
	limit, ok := w.limitAt(w.now)
	if w.group != nil && !w.group.hasCapacity(w.now) {
		return false
	}
	return ok && w.admits(limit, due)
}

func (w *Window) admits(limit int64, due bool) bool {
	if due {
		return w.started(w.now) < limit
	}
	return w.fits(w.now, limit)
}

// Start counts an execution that begins now.
func (w *Window) Start() { w.change(w.now, 1, 0) }

// TakeBack takes a Start back.
func (w *Window) TakeBack() { w.change(w.now, -1, 0) }

// FirstFree returns when the first bucket begins in which there is room for one more execution beside all reservations. It is
// neither before the bucket at from nor before the current one.
func (w *Window) FirstFree(from int64) int64 {
	at := max(from/w.Bucket, w.now)
	if w.group != nil {
		return w.begin(w.group.firstFree(w, at))
	}
	return w.begin(w.firstFree(at, w.Rules.Limit))
}

// TooFarAhead reports whether the bucket at a time is too far ahead for a reservation; see MaxAhead.
func (w *Window) TooFarAhead(at int64) bool { return w.tooFarAhead(at / w.Bucket) }

// Reserve reserves a place in the bucket at a time.
func (w *Window) Reserve(at int64) { w.reserve(at / w.Bucket) }

// Withdraw removes a reservation in the bucket at a time, unless it has lapsed.
func (w *Window) Withdraw(at int64) { w.withdraw(at / w.Bucket) }

// IsDue reports whether the bucket at a time has begun.
func (w *Window) IsDue(at int64) bool { return at/w.Bucket <= w.now }

// Passed returns a time in a bucket that has passed.
func (w *Window) Passed() int64 { return w.begin(w.now - 1) }

// grace is for how long a place is kept, in a window of ordinary length, for a job that was to come when the window began.
const grace = 3_000_000

// MaxAhead bounds how far ahead reservations are made, in buckets that have some. A job that would get a later bucket comes
// back at that time without a reservation.
const MaxAhead = 1000

// add adds counts to a bucket. Most calls are for a bucket after the last.
func (w *Window) add(b Bucket) {
	if n := len(w.Filled); n == 0 || w.Filled[n-1].At < b.At {
		w.Filled = append(w.Filled, b)
		return
	}
	to := w.bucketAt(b.At)
	to.Started += b.Started
	to.Reserved += b.Reserved
}

// prune removes what no longer has an effect. If an execution began later than now, the clock was set back. If that was by
// at most one window, now stays at that bucket until the clock reaches it again. Otherwise the execution is forgotten.
func (w *Window) prune() {
	latest := w.now + 2*w.Buckets
	for _, b := range w.Filled {
		if b.Started > 0 && b.At > w.now && b.At-w.now <= w.Buckets && b.At < latest {
			w.now = b.At
		}
	}
	for i := range w.Filled {
		b := &w.Filled[i]
		if b.At > w.now {
			b.Started = 0
		}
		if b.At < w.now {
			b.Reserved = 0
		}
	}
	w.Filled = slices.DeleteFunc(w.Filled, func(b Bucket) bool {
		return b.At <= w.now-w.Buckets || b.Started == 0 && b.Reserved == 0
	})
}

// LapseAfter returns how long after the beginning of a bucket the reservations in it lapse. A limit of thousands an hour gives
// thousands of jobs the same time, and they need a while to be fetched.
func LapseAfter(width int64) int64 { return min(width/4, max(grace, width/120), 10*grace) }

// lapse removes the reservations in the current bucket if their jobs had enough time to come. A job that comes later is due
// as before, but others can have taken the place.
func (w *Window) lapse(now int64) {
	if i, ok := w.search(w.now); ok && now >= w.begin(w.now)+LapseAfter(w.Bucket) {
		w.Filled[i].Reserved = 0
	}
}

// Expires returns when the state no longer has an effect, in µs since the epoch.
func (w *Window) Expires() int64 {
	last := w.now
	if n := len(w.Filled); n > 0 {
		last = max(last, w.Filled[n-1].At)
	}
	return (last + w.Buckets) * w.Bucket
}

// search returns the index of a bucket in filled, or where it would be inserted.
func (w *Window) search(at int64) (int, bool) {
	return slices.BinarySearchFunc(w.Filled, at, func(b Bucket, at int64) int { return cmp.Compare(b.At, at) })
}

func (w *Window) bucketAt(at int64) *Bucket {
	i, ok := w.search(at)
	if !ok {
		w.Filled = slices.Insert(w.Filled, i, Bucket{At: at})
	}
	return &w.Filled[i]
}

// started returns how many executions began in the window that ends at a bucket.
func (w *Window) started(at int64) (n int64) {
	i, _ := w.search(at - w.Buckets + 1)
	for ; i < len(w.Filled) && w.Filled[i].At <= at; i++ {
		n += w.Filled[i].Started
	}
	return n
}

// used reports whether anything began or is reserved in the window that ends at a bucket.
func (w *Window) used(at int64) bool {
	i, _ := w.search(at - w.Buckets + 1)
	for ; i < len(w.Filled) && w.Filled[i].At <= at; i++ {
		if w.Filled[i].Started+w.Filled[i].Reserved > 0 {
			return true
		}
	}
	return false
}

// fits reports whether one more execution in a bucket, counted with all reservations, leaves every window that contains
// the bucket within the limit.
func (w *Window) fits(at, limit int64) bool {
	first, _ := w.search(at - w.Buckets + 1)
	sum, left := int64(0), first
	i := first
	for ; i < len(w.Filled) && w.Filled[i].At <= at; i++ {
		sum += w.Filled[i].Started + w.Filled[i].Reserved
	}
	if sum+1 > limit {
		return false
	}
	for ; i < len(w.Filled) && w.Filled[i].At < at+w.Buckets; i++ { // the windows that end at w.Filled[i].At
		for ; w.Filled[left].At <= w.Filled[i].At-w.Buckets; left++ {
			sum -= w.Filled[left].Started + w.Filled[left].Reserved
		}
		sum += w.Filled[i].Started + w.Filled[i].Reserved
		if sum+1 > limit {
			return false
		}
	}
	return true
}

// firstFree returns the first bucket, not before from, in which one more execution fits. It visits each filled bucket
// twice: when it enters the moving window, and when it leaves it.
func (w *Window) firstFree(from, limit int64) int64 {
	from = w.searchFrom(from)
	leaves, _ := w.search(from - w.Buckets + 1)
	enters, sum := leaves, int64(0)
	for at, end := from, from; ; { // nothing before at is free; the windows that end from at to before end are not full
		for ; enters < len(w.Filled) && w.Filled[enters].At <= end; enters++ {
			sum += w.Filled[enters].Started + w.Filled[enters].Reserved
		}
		for ; leaves < enters && w.Filled[leaves].At <= end-w.Buckets; leaves++ {
			sum -= w.Filled[leaves].Started + w.Filled[leaves].Reserved
		}
		next := int64(math.MaxInt64) // where the sum changes
		if enters < len(w.Filled) {
			next = w.Filled[enters].At
		}
		if leaves < enters {
			next = min(next, w.Filled[leaves].At+w.Buckets)
		}
		if sum >= limit {
			at = next
		}
		if end = next; end >= at+w.Buckets || end == math.MaxInt64 {
			w.foundFree = at
			return at
		}
	}
}

// searchFrom returns where a search from a bucket begins: later than from if the last search has covered the first part.
func (w *Window) searchFrom(from int64) int64 {
	if w.foundFree != 0 && from >= w.searchedFrom && from <= w.foundFree {
		return w.foundFree
	}
	w.searchedFrom = from
	return from
}

// freed is called when something was taken out of a bucket, which can free the buckets around it.
func (w *Window) freed(at int64) {
	if w.foundFree != 0 {
		w.foundFree = max(w.searchedFrom, min(w.foundFree, at-w.Buckets+1))
	}
}

func (w *Window) change(at, started, reserved int64) {
	w.add(Bucket{At: at, Started: started, Reserved: reserved})
	w.Changed = true
	if w.group != nil {
		w.group.changed(w.index, at, started, reserved)
	}
}

// tooFarAhead reports whether a bucket is too far ahead for a reservation; see MaxAhead.
func (w *Window) tooFarAhead(at int64) bool {
	i, ok := w.search(at)
	now, _ := w.search(w.now)
	return !ok && i-now > MaxAhead
}

func (w *Window) reserve(at int64) { w.change(at, 0, 1) }

// withdraw removes a reservation. One for a bucket that has passed has been removed by prune.
func (w *Window) withdraw(at int64) {
	if i, ok := w.search(at); ok && w.Filled[i].Reserved > 0 {
		w.freed(at)
		w.change(at, 0, -1)
	}
}

// begin returns when a bucket begins, in µs since the epoch.
func (w *Window) begin(at int64) int64 { return at * w.Bucket }

// A stored state with higher times or counts is corrupt. Within these bounds nothing overflows.
const (
	maxTime    = 1 << 59 // µs
	maxCounted = 1 << 40
)

// Read reads the state of a key at a time, in µs since the epoch, without what no longer has an effect and without
// reservations that have lapsed.
//
// If the length of the limiter's buckets has changed since, the counts are moved to new buckets. Executions are counted in
// the last new bucket that overlaps the old one and has begun, so that none leaves the window early. Reservations go to the
// new bucket in which the old one begins, because a waiting job remembers that time.
func Read(state string, r Rules, now int64) (*Window, error) {
	w := &Window{Rules: r, now: now / r.Bucket}
	if state == "" {
		return w, nil
	}
	old, rest, ok := cutNumber(state, maxTime)
	if !ok || old == 0 {
		return nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
	}
	w.Changed = old != r.Bucket
	w.Filled = make([]Bucket, 0, strings.Count(rest, " ")+2)
	for at := int64(0); rest != ""; {
		var n [3]int64
		for i, most := range [3]int64{max(maxTime/old-2, 0) - at, maxCounted, maxCounted} {
			if !ok || rest == "" || rest[0] != " ::"[i] {
				return nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
			}
			n[i], rest, ok = cutNumber(rest[1:], most)
		}
		if !ok {
			return nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
		}
		at += n[0]
		if old == r.Bucket {
			w.add(Bucket{At: at, Started: n[1], Reserved: n[2]})
			continue
		}
		begun, last := at*old/r.Bucket, ((at+1)*old-1)/r.Bucket
		if begun <= w.now {
			last = min(last, w.now)
		}
		w.add(Bucket{At: last, Started: n[1]})
		w.add(Bucket{At: begun, Reserved: n[2]})
	}
	w.prune()
	w.lapse(now)
	return w, nil
}

// cutNumber returns the number at the beginning of a text, and the rest. ok is false if there is none or it is above most.
func cutNumber(text string, most int64) (n int64, rest string, ok bool) {
	i := 0
	for ; i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
		if n = n*10 + int64(text[i]-'0'); n > most {
			return 0, "", false
		}
	}
	return n, text[i:], i > 0
}

// String returns the state for Read: the width, then at:started:reserved for each bucket, where at is the distance
// from the bucket before. It is empty if all counts are 0.
func (w *Window) String() string {
	var text []byte
	last := int64(0)
	for _, b := range w.Filled {
		if b.Started == 0 && b.Reserved == 0 {
			continue
		}
		if len(text) == 0 {
			text = strconv.AppendInt(text, w.Bucket, 10)
		}
		text = append(text, ' ')
		text = strconv.AppendInt(text, b.At-last, 10)
		text = append(text, ':')
		text = strconv.AppendInt(text, b.Started, 10)
		text = append(text, ':')
		text = strconv.AppendInt(text, b.Reserved, 10)
		last = b.At
	}
	return string(text)
}
