// Package window has the arithmetic of windows for jobs: what has begun in them, which places are reserved, and how the keys of a
// dynamic window share its capacity. It has neither a clock nor a lock. Times are in µs since the epoch.
package window

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Rules are the limits of a window, as jobs.Definition describes them.
type Rules struct {
	Bucket  int64 // the length of a bucket, µs
	Buckets int64
	Limit   int64   // of a key; of a dynamic window, the most that it gets
	Shares  *Shares // nil: it is no dynamic window
}

// Interval returns the length of the window.
func (r Rules) Interval() int64 { return r.Bucket * r.Buckets }

// Shares say how the keys of a dynamic window share its capacity.
type Shares struct {
	Capacity int64 // of all keys
	Min      int64 // the least that a key gets
	Keys     int64 // how many may take part
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
	*group
	Filled  []Bucket // in order
	Changed bool     // since it was read

	index        int   // in the group
	searchedFrom int64 // the bucket at which the last FirstFree began
	foundFree    int64 // the bucket that it found; those between are not free; 0: there is none since a change
}

// A Bucket is what a window counts in one of its buckets.
type Bucket struct {
	At       int64 // the number of the bucket
	Started  int64
	Reserved int64
}

// A group has the windows of the keys of a dynamic window. Any other window is alone in its group.
//
// A thousand jobs of one batch can need a thousand keys. So what depends on all keys is computed once for a batch and
// updated by change: the sum of all windows, and the keys that take part in each window that was asked about.
type group struct {
	Rules
	now            int64     // the current bucket
	windows        []*Window // in the order of their keys
	all            *Window   // the sum of all windows
	participantsAt map[int64]*participants
}

// participants are the keys that take part in the window that ends at one bucket.
type participants struct {
	used []bool // by index
	n    int64
}

// PresentLimit returns the limit of the present window: 0 if its key cannot take part, because too many others do.
func (w *Window) PresentLimit() int64 {
	limit, _ := w.limitAt(w.now)
	return limit
}

// limitAt returns the limit in the window that ends at a bucket. ok is false if the key does not take part in it and cannot
// join, because too many others do.
func (w *Window) limitAt(at int64) (limit int64, ok bool) {
	s := w.Shares
	if s == nil {
		return w.Limit, true
	}
	keys := w.participantsOf(at)
	n := keys.n
	if !keys.used[w.index] {
		if n >= s.Keys {
			return 0, false
		}
		n++
	}
	limit = s.Capacity / n
	if extra := s.Capacity % n; extra > 0 && keys.rank(w.index) < extra {
		limit++
	}
	return max(s.Min, min(limit, w.Limit)), true
}

// hasCapacity reports whether the executions that have begun leave one within the capacity, in the window that ends at a
// bucket.
func (g *group) hasCapacity(at int64) bool {
	if g.Shares == nil {
		return true
	}
	started, _ := g.all.sum(at)
	return started < g.Shares.Capacity
}

// participantsOf returns the keys that take part in the window that ends at a bucket.
func (g *group) participantsOf(at int64) *participants {
	p := g.participantsAt[at]
	if p == nil {
		p = &participants{used: make([]bool, len(g.windows))}
		for i, w := range g.windows {
			p.set(i, w.used(at))
		}
		g.participantsAt[at] = p
	}
	return p
}

func (p *participants) set(i int, used bool) {
	if p.used[i] != used {
		p.used[i] = used
		if used {
			p.n++
		} else {
			p.n--
		}
	}
}

// rank returns how many keys with a lower index take part.
func (p *participants) rank(i int) (n int64) {
	for _, used := range p.used[:i] {
		if used {
			n++
		}
	}
	return n
}

// Started returns how many executions began in the present window.
func (w *Window) Started() int64 {
	n, _ := w.sum(w.now)
	return n
}

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
	switch {
	case !ok || !w.hasCapacity(w.now):
		return false
	case due:
		return w.Started() < limit
	}
	return w.fits(w.now, limit)
}

// Start counts an execution that begins now.
func (w *Window) Start() { w.change(w.now, 1, 0) }

// TakeBack takes a Start back.
func (w *Window) TakeBack() { w.change(w.now, -1, 0) }

// Reserve reserves a place in the bucket at a time.
func (w *Window) Reserve(at int64) { w.change(at/w.Bucket, 0, 1) }

// Withdraw removes a reservation in the bucket at a time, unless it has lapsed.
func (w *Window) Withdraw(at int64) {
	if i, ok := w.search(at / w.Bucket); ok && w.Filled[i].Reserved > 0 {
		w.change(at/w.Bucket, 0, -1)
	}
}

// IsDue reports whether the bucket at a time has begun.
func (w *Window) IsDue(at int64) bool { return at/w.Bucket <= w.now }

// Passed returns a time in a bucket that has passed.
func (w *Window) Passed() int64 { return (w.now - 1) * w.Bucket }

// MaxAhead bounds how far ahead reservations are made, in buckets that have some. A job that would get a later bucket comes
// back at that time without a reservation.
const MaxAhead = 1000

// TooFarAhead reports whether the bucket at a time is too far ahead for a reservation; see MaxAhead.
func (w *Window) TooFarAhead(at int64) bool {
	i, ok := w.search(at / w.Bucket)
	now, _ := w.search(w.now)
	return !ok && i-now > MaxAhead
}

// maxTries bounds the search for a free bucket. A job for which none is found comes back where the search has ended.
const maxTries = 2 * MaxAhead

// FirstFree returns when the first bucket begins in which there is room for one more execution beside all reservations of the
// key. It is neither before the bucket at from nor before the current one. Reservations of other keys do not keep the key
// out: when their jobs come, their limits are smaller. Executions that have begun do.
//
// Room can come up where a bucket of any key leaves the window, and where a reservation of the key makes it take part.
func (w *Window) FirstFree(from int64) int64 {
	at := max(from/w.Bucket, w.now)
	if w.foundFree != 0 && at >= w.searchedFrom && at <= w.foundFree {
		at = w.foundFree
	} else {
		w.searchedFrom = at
	}
	leaves, _ := w.all.search(at - w.Buckets + 1)
	joins, _ := w.search(at + 1)
	for range maxTries {
		limit, ok := w.limitAt(at)
		full := w.lastFull(at, limit)
		if ok && full < at && w.hasCapacity(at) {
			break
		}
		if w.Shares == nil { // the limit is the same in later buckets, so none up to there is free
			at = max(at, full)
		}
		for leaves < len(w.all.Filled) && w.all.Filled[leaves].At+w.Buckets <= at {
			leaves++
		}
		for joins < len(w.Filled) && (w.Filled[joins].At <= at || w.Shares == nil) {
			joins++
		}
		at += w.Buckets
		if leaves < len(w.all.Filled) {
			at = w.all.Filled[leaves].At + w.Buckets
		}
		if joins < len(w.Filled) {
			at = min(at, w.Filled[joins].At)
		}
	}
	w.foundFree = at
	return at * w.Bucket
}

// Expires returns when the state no longer has an effect, in µs since the epoch.
func (w *Window) Expires() int64 {
	last := w.now
	if n := len(w.Filled); n > 0 {
		last = max(last, w.Filled[n-1].At)
	}
	return (last + w.Buckets) * w.Bucket
}

// search returns the index of a bucket in Filled, or where it would be inserted.
func (w *Window) search(at int64) (int, bool) {
	return slices.BinarySearchFunc(w.Filled, at, func(b Bucket, at int64) int { return cmp.Compare(b.At, at) })
}

// add adds counts to a bucket. Most calls are for a bucket after the last.
func (w *Window) add(b Bucket) {
	i, ok := len(w.Filled), false
	if i > 0 && w.Filled[i-1].At >= b.At {
		i, ok = w.search(b.At)
	}
	if !ok {
		w.Filled = slices.Insert(w.Filled, i, b)
		return
	}
	w.Filled[i].Started += b.Started
	w.Filled[i].Reserved += b.Reserved
}

// change adds counts to a bucket. What is taken out can free the buckets around it, for all keys.
func (w *Window) change(at, started, reserved int64) {
	b := Bucket{At: at, Started: started, Reserved: reserved}
	w.add(b)
	w.Changed = true
	if w.all != w {
		w.all.add(b)
	}
	for _, other := range w.windows {
		if started+reserved < 0 && other.foundFree != 0 {
			other.foundFree = max(other.searchedFrom, min(other.foundFree, at-w.Buckets+1))
		}
	}
	for end, p := range w.participantsAt {
		if at <= end && end < at+w.Buckets {
			p.set(w.index, w.used(end))
		}
	}
}

// sum returns how many executions began in the window that ends at a bucket, and how many places are reserved in it.
func (w *Window) sum(at int64) (started, reserved int64) {
	i, _ := w.search(at - w.Buckets + 1)
	for ; i < len(w.Filled) && w.Filled[i].At <= at; i++ {
		started += w.Filled[i].Started
		reserved += w.Filled[i].Reserved
	}
	return started, reserved
}

// used reports whether anything began or is reserved in the window that ends at a bucket.
func (w *Window) used(at int64) bool {
	started, reserved := w.sum(at)
	return started+reserved > 0
}

// fits reports whether one more execution in a bucket, counted with all reservations, leaves every window that contains
// the bucket within the limit.
func (w *Window) fits(at, limit int64) bool { return w.lastFull(at, limit) < at }

// lastFull returns where the last window that contains a bucket and has no room for one more execution ends, or the bucket
// before.
func (w *Window) lastFull(at, limit int64) int64 {
	started, reserved := w.sum(at)
	sum, full := started+reserved, at-1
	if sum >= limit {
		full = at
	}
	left, _ := w.search(at - w.Buckets + 1)
	i, _ := w.search(at + 1)
	for ; i < len(w.Filled) && w.Filled[i].At < at+w.Buckets; i++ { // the windows that end at w.Filled[i].At
		for ; w.Filled[left].At <= w.Filled[i].At-w.Buckets; left++ {
			sum -= w.Filled[left].Started + w.Filled[left].Reserved
		}
		if sum += w.Filled[i].Started + w.Filled[i].Reserved; sum >= limit {
			full = w.Filled[i].At
		}
	}
	return full
}

// read reads the state of a key with all that is in it.
//
// If the length of the limiter's buckets has changed since, the counts are moved to new buckets. Executions are counted in
// the last new bucket that overlaps the old one and has begun, so that none leaves the window early. Reservations go to the
// new bucket in which the old one begins, because a waiting job remembers that time.
func read(state string, r Rules, now int64) (*Window, error) {
	w := &Window{group: &group{Rules: r, now: now / r.Bucket}}
	width, filled, err := parse(state)
	if err != nil {
		return nil, err
	}
	if w.Changed = width != r.Bucket && state != ""; !w.Changed {
		w.Filled = filled
	} else {
		for _, b := range filled {
			begun, last := b.At*width/r.Bucket, ((b.At+1)*width-1)/r.Bucket
			if begun <= w.now {
				last = min(last, w.now)
			}
			w.add(Bucket{At: last, Started: b.Started})
			w.add(Bucket{At: begun, Reserved: b.Reserved})
		}
	}
	latest := w.now + 2*w.Buckets
	for _, b := range w.Filled { // an execution later than now: the clock was set back
		if b.Started > 0 && b.At > w.now && b.At-w.now <= w.Buckets && b.At < latest {
			w.now = b.At
		}
	}
	return w, nil
}

// Read reads the states of keys at a time, in µs since the epoch, without what no longer has an effect and without reservations
// that have lapsed. All keys of a dynamic window that have a state must be among them.
func Read(states map[string]string, r Rules, now int64) (map[string]*Window, error) {
	windows := map[string]*Window{}
	shared := &group{Rules: r, now: now / r.Bucket, participantsAt: map[int64]*participants{}}
	for _, key := range slices.Sorted(maps.Keys(states)) {
		w, err := read(states[key], r, now)
		if err != nil {
			return nil, err
		}
		windows[key] = w
		if r.Shares == nil {
			w.windows, w.all = []*Window{w}, w
			w.prune(now)
			continue
		}
		shared.now = max(shared.now, w.now)
		w.group, w.index = shared, len(shared.windows)
		shared.windows = append(shared.windows, w)
	}
	shared.prune(now)
	return windows, nil
}

// prune prunes the windows of all keys, and computes their sum.
func (g *group) prune(now int64) {
	all := map[int64]Bucket{}
	for _, w := range g.windows {
		w.prune(now)
		for _, b := range w.Filled {
			sum := all[b.At]
			all[b.At] = Bucket{At: b.At, Started: sum.Started + b.Started, Reserved: sum.Reserved + b.Reserved}
		}
	}
	g.all = &Window{group: g}
	for _, at := range slices.Sorted(maps.Keys(all)) {
		g.all.Filled = append(g.all.Filled, all[at])
	}
}

// grace is for how long a place is kept, in a window of ordinary length, for a job that was to come when the window began.
const grace = 3_000_000

// LapseAfter returns how long after the beginning of a bucket the reservations in it lapse. A limit of thousands an hour gives
// thousands of jobs the same time, and they need a while to be fetched. A job that comes later is due as before, but others
// can have taken the place.
func LapseAfter(width int64) int64 { return min(width/4, max(grace, width/120), 10*grace) }

// prune removes what no longer has an effect at a time. If an execution began later than now, the clock was set back. If that
// was by at most one window, the current bucket stays that of the execution until the clock reaches it again. Otherwise the
// execution is forgotten.
func (w *Window) prune(now int64) {
	lapsed := now >= w.now*w.Bucket+LapseAfter(w.Bucket)
	for i := range w.Filled {
		b := &w.Filled[i]
		if b.At > w.now {
			b.Started = 0
		}
		if b.At < w.now || b.At == w.now && lapsed {
			b.Reserved = 0
		}
	}
	w.Filled = slices.DeleteFunc(w.Filled, func(b Bucket) bool {
		return b.At <= w.now-w.Buckets || b.Started == 0 && b.Reserved == 0
	})
}

// parse reads what String has written. Higher times or counts than its bounds are corrupt; within them nothing overflows.
func parse(state string) (width int64, filled []Bucket, err error) {
	if state == "" {
		return 0, nil, nil
	}
	const timeBits, countBits = 59, 40
	first, rest, more := strings.Cut(state, " ")
	n, err := strconv.ParseUint(first, 10, timeBits)
	if err != nil || n == 0 {
		return 0, nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
	}
	width = int64(n)
	filled = make([]Bucket, 0, strings.Count(rest, " ")+2)
	for at := int64(0); more; {
		var bucket string
		bucket, rest, more = strings.Cut(rest, " ")
		distance, counts, _ := strings.Cut(bucket, ":")
		started, reserved, _ := strings.Cut(counts, ":")
		d, err1 := strconv.ParseUint(distance, 10, timeBits)
		s, err2 := strconv.ParseUint(started, 10, countBits)
		r, err3 := strconv.ParseUint(reserved, 10, countBits)
		at += int64(d)
		if err1 != nil || err2 != nil || err3 != nil || d == 0 && len(filled) > 0 || at > max(1<<timeBits/width-2, 0) {
			return 0, nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
		}
		filled = append(filled, Bucket{At: at, Started: int64(s), Reserved: int64(r)})
	}
	return width, filled, nil
}

// String returns the state for Read: the length of a bucket, then at:started:reserved for each bucket, where at is the distance
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
