package jobs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A window is the state of a window limiter, or of one key of a dynamic window. For each bucket, it has the number of
// executions that began in it and of waiting jobs with a reservation in it. Bucket n begins n times width after the epoch.
//
// The window that ends at bucket n has the buckets n-buckets+1 to n. Invariant: the executions that began in the window
// that ends at n, when one begins in n, are at most the limit.
//
// Reservations only say when a job comes back. The limit is checked again when the job starts, so that a late job or a
// lowered limit never leads to too many executions. A job whose reservation is due comes before one without. Some time after
// its bucket has begun a reservation lapses, so that no place is kept for a job that does not come.
type window struct {
	width        int64 // µs
	buckets      int64 // of the window
	now          int64 // the current bucket
	filled       []bucket
	searchedFrom int64 // where the last search began
	foundFree    int64 // what it found: no bucket between the two is free; 0: no search
	changed      bool
	onChange     func(at, started, reserved int64) // set by the dynamicWindow of the key: the change in a bucket
}

type bucket struct {
	at       int64 // the number of the bucket
	started  int64
	reserved int64
}

// maxAhead bounds how far ahead reservations are made, in buckets that have some. A job that would get a later bucket comes
// back at that time without a reservation.
const maxAhead = 1000

// add adds counts to a bucket. Most calls are for a bucket after the last.
func (w *window) add(b bucket) {
	if n := len(w.filled); n == 0 || w.filled[n-1].at < b.at {
		w.filled = append(w.filled, b)
		return
	}
	to := w.bucket(b.at)
	to.started += b.started
	to.reserved += b.reserved
}

// prune removes what no longer has an effect. If an execution began later than now, the clock was set back. If that was by
// at most one window, now stays at that bucket until the clock reaches it again. Otherwise the execution is forgotten.
func (w *window) prune() {
	latest := w.now + 2*w.buckets
	for _, b := range w.filled {
		if b.started > 0 && b.at > w.now && b.at-w.now <= w.buckets && b.at < latest {
			w.now = b.at
		}
	}
	for i := range w.filled {
		b := &w.filled[i]
		if b.at > w.now {
			b.started = 0
		}
		if b.at < w.now {
			b.reserved = 0
		}
	}
	w.filled = slices.DeleteFunc(w.filled, func(b bucket) bool {
		return b.at <= w.now-w.buckets || b.started == 0 && b.reserved == 0
	})
}

// lapseAfter returns how long after the beginning of a bucket the reservations in it lapse. A limit of thousands an hour gives
// thousands of jobs the same time, and they need a while to be fetched.
func lapseAfter(width int64) int64 { return min(width/4, max(maxGrace, width/120), 10*maxGrace) }

// lapse removes the reservations in the current bucket if their jobs had enough time to come. A job that comes later is due
// as before, but others can have taken the place.
func (w *window) lapse(now int64) {
	if i, ok := w.search(w.now); ok && now >= w.begin(w.now)+lapseAfter(w.width) {
		w.filled[i].reserved = 0
	}
}

// expires returns when the state no longer has an effect, in µs since the epoch.
func (w *window) expires() int64 {
	last := w.now
	if n := len(w.filled); n > 0 {
		last = max(last, w.filled[n-1].at)
	}
	return (last + w.buckets) * w.width
}

// search returns the index of a bucket in filled, or where it would be inserted.
func (w *window) search(at int64) (int, bool) {
	return slices.BinarySearchFunc(w.filled, at, func(b bucket, at int64) int { return cmp.Compare(b.at, at) })
}

func (w *window) bucket(at int64) *bucket {
	i, ok := w.search(at)
	if !ok {
		w.filled = slices.Insert(w.filled, i, bucket{at: at})
	}
	return &w.filled[i]
}

// started returns how many executions began in the window that ends at a bucket.
func (w *window) started(at int64) (n int64) {
	i, _ := w.search(at - w.buckets + 1)
	for ; i < len(w.filled) && w.filled[i].at <= at; i++ {
		n += w.filled[i].started
	}
	return n
}

// used reports whether anything began or is reserved in the window that ends at a bucket.
func (w *window) used(at int64) bool {
	i, _ := w.search(at - w.buckets + 1)
	for ; i < len(w.filled) && w.filled[i].at <= at; i++ {
		if w.filled[i].started+w.filled[i].reserved > 0 {
			return true
		}
	}
	return false
}

// fits reports whether one more execution in a bucket, counted with all reservations, leaves every window that contains
// the bucket within the limit.
func (w *window) fits(at, limit int64) bool {
	first, _ := w.search(at - w.buckets + 1)
	sum, left := int64(0), first
	i := first
	for ; i < len(w.filled) && w.filled[i].at <= at; i++ {
		sum += w.filled[i].started + w.filled[i].reserved
	}
	if sum+1 > limit {
		return false
	}
	for ; i < len(w.filled) && w.filled[i].at < at+w.buckets; i++ { // the windows that end at w.filled[i].at
		for ; w.filled[left].at <= w.filled[i].at-w.buckets; left++ {
			sum -= w.filled[left].started + w.filled[left].reserved
		}
		sum += w.filled[i].started + w.filled[i].reserved
		if sum+1 > limit {
			return false
		}
	}
	return true
}

// firstFree returns the first bucket, not before from, in which one more execution fits. It visits each filled bucket
// twice: when it enters the moving window, and when it leaves it.
func (w *window) firstFree(from, limit int64) int64 {
	from = w.searchFrom(from)
	leaves, _ := w.search(from - w.buckets + 1)
	enters, sum := leaves, int64(0)
	for at, end := from, from; ; { // nothing before at is free; the windows that end from at to before end are not full
		for ; enters < len(w.filled) && w.filled[enters].at <= end; enters++ {
			sum += w.filled[enters].started + w.filled[enters].reserved
		}
		for ; leaves < enters && w.filled[leaves].at <= end-w.buckets; leaves++ {
			sum -= w.filled[leaves].started + w.filled[leaves].reserved
		}
		next := int64(math.MaxInt64) // where the sum changes
		if enters < len(w.filled) {
			next = w.filled[enters].at
		}
		if leaves < enters {
			next = min(next, w.filled[leaves].at+w.buckets)
		}
		if sum >= limit {
			at = next
		}
		if end = next; end >= at+w.buckets || end == math.MaxInt64 {
			w.foundFree = at
			return at
		}
	}
}

// searchFrom returns where a search from a bucket begins: later than from if the last search has covered the first part.
func (w *window) searchFrom(from int64) int64 {
	if w.foundFree != 0 && from >= w.searchedFrom && from <= w.foundFree {
		return w.foundFree
	}
	w.searchedFrom = from
	return from
}

// freed is called when something was taken out of a bucket, which can free the buckets around it.
func (w *window) freed(at int64) {
	if w.foundFree != 0 {
		w.foundFree = max(w.searchedFrom, min(w.foundFree, at-w.buckets+1))
	}
}

// start counts an execution that begins now.
func (w *window) start() { w.change(w.now, 1, 0) }

func (w *window) change(at, started, reserved int64) {
	w.add(bucket{at: at, started: started, reserved: reserved})
	w.changed = true
	if w.onChange != nil {
		w.onChange(at, started, reserved)
	}
}

// tooFarAhead reports whether a bucket is too far ahead for a reservation; see maxAhead.
func (w *window) tooFarAhead(at int64) bool {
	i, ok := w.search(at)
	now, _ := w.search(w.now)
	return !ok && i-now > maxAhead
}

func (w *window) reserve(at int64) { w.change(at, 0, 1) }

// withdraw removes a reservation. One for a bucket that has passed has been removed by prune.
func (w *window) withdraw(at int64) {
	if i, ok := w.search(at); ok && w.filled[i].reserved > 0 {
		w.freed(at)
		w.change(at, 0, -1)
	}
}

// begin returns when a bucket begins, in µs since the epoch.
func (w *window) begin(at int64) int64 { return at * w.width }

// admits reports whether an execution may begin now. due says that the job had a reservation for now or before, which was
// withdrawn: then only executions count, not the reservations of others.
func (w *window) admits(limit int64, due bool) bool {
	if due {
		return w.started(w.now) < limit
	}
	return w.fits(w.now, limit)
}

// A stored state with higher times or counts is corrupt. Within these bounds nothing overflows.
const (
	maxTime    = 1 << 59 // µs
	maxCounted = 1 << 40
)

// readWindow reads the state of a key at a time, in µs since the epoch, without what no longer has an effect and without
// reservations that have lapsed.
//
// If the length of the limiter's buckets has changed since, the counts are moved to new buckets. Executions are counted in
// the last new bucket that overlaps the old one and has begun, so that none leaves the window early. Reservations go to the
// new bucket in which the old one begins, because waiterRow.bucket names that time.
func readWindow(state string, r rules, now int64) (*window, error) {
	w := &window{width: r.bucket, buckets: r.buckets, now: now / r.bucket}
	if state == "" {
		return w, nil
	}
	old, rest, ok := cutNumber(state, maxTime)
	if !ok || old == 0 {
		return nil, fmt.Errorf("jobs: the state %.100q of a window cannot be read", state)
	}
	w.changed = old != r.bucket
	w.filled = make([]bucket, 0, strings.Count(rest, " ")+2)
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
		if old == r.bucket {
			w.add(bucket{at: at, started: n[1], reserved: n[2]})
			continue
		}
		begun, last := at*old/r.bucket, ((at+1)*old-1)/r.bucket
		if begun <= w.now {
			last = min(last, w.now)
		}
		w.add(bucket{at: last, started: n[1]})
		w.add(bucket{at: begun, reserved: n[2]})
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

// String returns the state for readWindow: the width, then at:started:reserved for each bucket, where at is the distance
// from the bucket before. It is empty if all counts are 0.
func (w *window) String() string {
	var text []byte
	last := int64(0)
	for _, b := range w.filled {
		if b.started == 0 && b.reserved == 0 {
			continue
		}
		if len(text) == 0 {
			text = strconv.AppendInt(text, w.width, 10)
		}
		text = append(text, ' ')
		text = strconv.AppendInt(text, b.at-last, 10)
		text = append(text, ':')
		text = strconv.AppendInt(text, b.started, 10)
		text = append(text, ':')
		text = strconv.AppendInt(text, b.reserved, 10)
		last = b.at
	}
	return string(text)
}
