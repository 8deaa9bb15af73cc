package jobs

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// An ask is a job's question whether it may start.
type ask struct {
	job       int64
	attempted time.Time // with job, this names one run
	first     bool      // it is the job's first run
	strict    bool
	leaves    bool  // the job never comes: it gives back the places that it has reserved
	waits     bool  // false: the job is cancelled if it is throttled, and waits for nothing
	stays     int64 // for how long it may wait in its worker, µs
	minDelay  int64 // µs
	lead      int64 // how much earlier than its turn it is brought back, µs
	needs     []need

	result verdict

	// The batcher's:
	until time.Time // how long it may wait in its worker
	asked time.Time // waiting there, it asked last
	again time.Time // and asks again
	done  chan verdict
	left  bool // the job does not wait for the answer any more; guarded by batcher.mu
}

// A need is one limit of a job, with its templates filled in.
type need struct {
	ref      Ref
	owner    string
	named    bool // the owner is not the job
	mode     Mode
	deadline int64 // µs; 0: none
	id       int64 // of the row in jobs_keys
	resource int64 // dynamic windows: of the resource's row
}

// A verdict is the answer to an ask.
type verdict struct {
	err       error
	granted   bool
	present   bool  // not granted, and the job waits in its worker
	turn      int64 // present: how long that will take, µs
	by        Ref   // not granted: the limiter that makes it wait longest
	wake      int64 // not granted: when to come back
	fence     int64
	rows      int     // granted: how many rows of jobs_holders are to be released and renewed
	leased    bool    // granted: the rows have a lease
	fenced    bool    // granted: a slot was needed
	contended []int64 // of these, the keys that others wait for
	waited    int64   // granted: since when it was first sent away, µs; by is the limiter that did it
	late      int64   // how much later than it should the job came back, µs; -1: it was not sent away
}

// A batch is what one transaction has read, and what it will write. Decisions change the former and note the latter.
type batch struct {
	now     int64
	fence   int64
	rows    map[int64]*keyRow
	dynamic map[int64]*resource // by the resource's row
	running map[run]bool        // jobs that are running in the database; nil: not asked
	known   map[place]waiting   // rows of jobs_waiters of the jobs that ask
	keysOf  map[int64][]int64   // of these jobs, the keys that known has or had

	room int // how many more jobs may wait in their workers

	dead  []holder
	adopt []holder
	hold  map[slot]holder
	gone  map[place]bool
	wait  map[place]waiting

	unseen []int64 // keys that were released without their lock, and that others wait for
}

type slot struct {
	key   int64
	owner string
	job   int64
}

type run struct {
	job       int64
	attempted int64 // µs
}

type place struct{ key, job int64 }

type waiting struct {
	wake     int64
	earliest int64
	since    int64 // when it was sent away first; 0: now
	bucket   int64 // when the bucket begins in which a place is reserved, µs, whatever length buckets have later; -1: none
	present  bool
}

type holder struct {
	key       int64
	owner     string
	job       int64
	attempted time.Time
	mode      int16
	until     int64 // µs from now; 0: none
	since     int64 // µs; 0: now
	fence     int64
}

// Modes of rows in jobs_holders.
const (
	relaxedRow = iota
	strictRow
	keptRow
)

// A keyRow is a row of jobs_keys with what was made of it: slots or a window. Those of dynamic windows are in their
// resource, too.
type keyRow struct {
	id, limiter int64
	ref         Ref
	rules       rules
	state       string
	waiting     int64 // how many jobs wait for the key
	before      int64 // the same, as it was read
	slots       *slots
	window      *window
	kept        map[string]bool // owners with a row that is kept
}

// decide answers the asks, in the order of their jobs.
func (b *batch) decide(asks []*ask, lease int64) {
	slices.SortStableFunc(asks, func(x, y *ask) int { return cmp.Compare(x.job, y.job) })
	for p := range b.known {
		b.keysOf[p.job] = append(b.keysOf[p.job], p.key)
	}
	for _, a := range asks {
		b.one(a, lease)
	}
}

// toBringBack returns the waiters that are to come back now, because their turn is near, by key. Not the jobs that this
// transaction snoozes: for River they are still running.
func (b *batch) toBringBack(lead int64) map[int64][]waiter {
	next := map[int64][]waiter{}
	for id, row := range b.rows {
		if row.slots == nil {
			continue
		}
		for _, w := range row.slots.pull(b.now, lead) {
			if !b.waits(place{id, w.job}) { // else its run has not ended yet, and River would not find it
				next[id] = append(next[id], w)
			}
		}
	}
	return next
}

// comes notes when a waiter comes back.
func (b *batch) comes(key int64, w waiter, wake int64) {
	b.wait[place{key, w.job}] = waiting{wake: wake, earliest: w.earliest, bucket: -1}
	w.wake = wake
	b.rows[key].slots.join(w)
}

// forget removes a waiter whose job never comes.
func (b *batch) forget(p place) {
	if row := b.rows[p.key]; row != nil && row.slots != nil {
		row.slots.leave(p.job)
		b.leave(p)
	}
}

// one answers one ask. Either all its needs are met and it takes them, or it takes nothing.
func (b *batch) one(a *ask, lease int64) {
	known := make([]waiting, len(a.needs))
	were := make([]bool, len(a.needs))
	for i, n := range a.needs {
		row := b.rows[n.id]
		known[i], were[i] = b.known[place{n.id, a.job}]
		if were[i] && row.window != nil && known[i].bucket >= 0 {
			row.window.withdraw(known[i].bucket / row.window.width)
		}
		if row.slots != nil {
			row.slots.leave(a.job)
		}
	}
	if a.leaves {
		b.forgetJob(a.job)
		return
	}
	refused := make([]bool, len(a.needs))
	granted := true
	for i, n := range a.needs {
		refused[i] = !b.admits(a, n, were[i] && known[i].bucket >= 0, known[i].bucket)
		granted = granted && !refused[i]
		if !refused[i] && a.several(n.resource) { // what it takes of one key is not there for the other
			w := b.rows[n.id].window
			w.change(w.now, +1, 0)
		}
	}
	a.result = verdict{granted: granted, late: -1}
	for i, w := range known {
		if were[i] && !w.present {
			a.result.late = max(a.result.late, b.now-w.wake)
		}
		if were[i] && granted && b.now-w.since > a.result.waited {
			a.result.waited, a.result.by = b.now-w.since, a.needs[i].ref
		}
	}
	if !granted {
		b.sendAway(a, refused, were)
	}
	for i, n := range a.needs {
		if !refused[i] && a.several(n.resource) {
			w := b.rows[n.id].window
			w.change(w.now, -1, 0)
		}
	}
	if granted {
		b.grant(a, lease)
	}
	for i, n := range a.needs {
		switch {
		case !were[i] || !granted && refused[i] && a.waits:
		case !granted && a.waits && known[i].bucket >= 0:
			b.keepPlace(a, n, known[i])
		default:
			b.leave(place{n.id, a.job})
		}
	}
	if !granted {
		return
	}
	b.forgetJob(a.job) // what it waited for under limits that it does not have any more
}

// forgetJob removes a job from all that wait.
func (b *batch) forgetJob(job int64) {
	for _, key := range b.keysOf[job] {
		if p := (place{key, job}); b.waits(p) {
			b.leave(p)
		}
	}
}

// several reports whether the job needs more than one key of a dynamic window.
func (a *ask) several(resource int64) bool {
	n := 0
	for i := range a.needs {
		if resource != 0 && a.needs[i].resource == resource {
			n++
		}
	}
	return n > 1
}

func (b *batch) waits(p place) bool {
	_, ok := b.known[p]
	return ok
}

// keepPlace lets a job that another limit sends away keep its place in a window: else it would be behind all who have one,
// each time. If the time of the place has come, it keeps no other job from it, and this one comes before those without a
// place when it is back.
func (b *batch) keepPlace(a *ask, n need, w waiting) {
	window := b.rows[n.id].window
	if at := w.bucket / window.width; at > window.now {
		window.reserve(at)
	} else {
		w.bucket = window.begin(window.now - 1)
	}
	if w.present = a.result.present; !w.present {
		w.wake, w.earliest = a.result.wake, a.result.wake
	}
	b.join(place{n.id, a.job}, w)
}

// leave removes a job from the waiters of a key.
func (b *batch) leave(p place) {
	delete(b.known, p)
	delete(b.wait, p)
	b.gone[p] = true
	if row := b.rows[p.key]; row != nil {
		row.count(-1)
	}
}

// join adds a job to the waiters of a key.
func (b *batch) join(p place, w waiting) {
	old, was := b.known[p]
	if !was {
		b.rows[p.key].count(+1)
		b.keysOf[p.job] = append(b.keysOf[p.job], p.key)
	}
	if old != w || !was {
		b.known[p], b.wait[p] = w, w
		delete(b.gone, p)
	}
}

func (r *keyRow) count(n int64) {
	r.waiting = max(r.waiting+n, 0)
	if r.slots != nil {
		r.slots.waiting = r.waiting
	}
}

func (b *batch) admits(a *ask, n need, reserved bool, bucket int64) bool {
	row := b.rows[n.id]
	switch {
	case n.resource != 0:
		d := b.dynamic[n.resource]
		return d.admits(n.ref.Key, reserved && bucket/d.bucket <= d.now)
	case row.window != nil:
		return row.window.admits(row.rules.limit, reserved && bucket/row.window.width <= row.window.now)
	case n.mode == Release:
		return true
	}
	return row.slots.admits(n.owner, a.job, b.now)
}

func (b *batch) grant(a *ask, lease int64) {
	b.fence++
	a.result.fence = b.fence
	for _, n := range a.needs {
		row := b.rows[n.id]
		if row.window != nil {
			row.window.start()
			continue
		}
		a.result.fenced = true
		h := holder{key: n.id, owner: n.owner, job: a.job, attempted: a.attempted, fence: b.fence}
		switch n.mode {
		case Acquire:
			row.slots.take(n.owner, b.now)
			if row.kept[n.owner] {
				continue // its deadline stays what it was
			}
			row.kept[n.owner] = true
			h.mode, h.until = keptRow, n.deadline
			b.hold[slot{n.id, n.owner, a.job}] = h
			continue
		case Release:
			if !row.kept[n.owner] {
				continue // nothing to release
			}
			delete(row.kept, n.owner)
			maps.DeleteFunc(b.hold, func(s slot, taken holder) bool { // what a job of this batch has taken
				return s.key == n.id && s.owner == n.owner && taken.mode == keptRow
			})
			h.since = row.slots.owners[n.owner] // for how long it will have been held
			b.adopt = append(b.adopt, h)
		default:
			row.slots.take(n.owner, b.now)
		}
		h.mode, h.until = relaxedRow, lease
		if a.strict {
			h.mode, h.until = strictRow, 0
		}
		b.hold[slot{n.id, n.owner, a.job}] = h
		a.result.rows++
		a.result.leased = !a.strict
		if row.ref.Type == Mutex || row.waiting > 0 {
			a.result.contended = append(a.result.contended, n.id)
		}
	}
}

// sendAway computes when the job has a chance, and reserves its places in windows.
func (b *batch) sendAway(a *ask, refused, were []bool) {
	turn, by := int64(0), Ref{}
	slotsOnly := true
	for i, n := range a.needs {
		if !refused[i] {
			continue
		}
		if s := b.rows[n.id].slots; s != nil {
			if t := s.turn(a.job, b.now, were[i]); t >= turn {
				turn, by = t, n.ref
			}
		} else {
			slotsOnly = false
		}
	}
	if !a.waits {
		a.result.wake, a.result.by = b.now+turn, by
		if !slotsOnly {
			b.places(a, refused, &a.result, b.now+turn)
		}
		return
	}
	if slotsOnly && a.minDelay == 0 && a.stays > 0 && turn <= a.stays && b.room > 0 {
		b.room--
		a.result.present, a.result.wake, a.result.by, a.result.turn = true, b.now, by, turn
	} else {
		a.result.wake, a.result.by = b.now+max(turn-a.lead, a.minDelay, ms), by
	}
	var buckets []int64
	earliest := b.now + a.minDelay
	if !slotsOnly {
		buckets = b.places(a, refused, &a.result, b.now+max(turn, a.minDelay))
		earliest = a.result.wake
	}
	for i, n := range a.needs {
		if !refused[i] {
			continue
		}
		p := place{n.id, a.job}
		row, w := b.rows[n.id], waiting{wake: a.result.wake, earliest: earliest, bucket: -1, present: a.result.present}
		w.since = b.known[p].since
		if old, ok := b.known[p]; ok && old.present && w.present && b.now-old.wake < presentFor/2 {
			w = old // it said so not long ago
		}
		if row.slots != nil {
			row.slots.join(waiter{job: a.job, wake: w.wake, earliest: w.earliest, present: w.present})
		} else if at := buckets[i]; at >= 0 {
			row.window.reserve(at)
			w.bucket = row.window.begin(at)
		}
		b.join(p, w)
	}
}

// places finds a time, not before from, at which every window that refuses the job has a place for it, and the buckets
// of that time: -1 where it is too far ahead to reserve one.
func (b *batch) places(a *ask, refused []bool, v *verdict, from int64) []int64 {
	buckets := make([]int64, len(a.needs))
	at := from
	for range 8 { // each round moves on to where a window has a place; more would not change what is reserved by much
		before := at
		for i, n := range a.needs {
			row := b.rows[n.id]
			buckets[i] = -1
			if row.window == nil || !refused[i] {
				continue
			}
			w := row.window
			first := max(at/w.width, w.now)
			if n.resource != 0 {
				buckets[i] = b.dynamic[n.resource].firstFree(n.ref.Key, first)
			} else {
				buckets[i] = w.firstFree(first, row.rules.limit)
			}
			if t := w.begin(buckets[i]); t >= at || v.by.Name == "" {
				at, v.by = max(at, t), n.ref
			}
			if w.tooFarAhead(buckets[i]) {
				buckets[i] = -1
			}
		}
		if at == before {
			break
		}
	}
	v.wake = max(v.wake, at)
	return buckets
}
