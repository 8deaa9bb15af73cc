package jobs

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// An ask is a job's question whether it may start.
type request struct {
	job       int64
	attempted time.Time // with job, this names one run
	first     bool      // it is the job's first run
	strict    bool
	withdraws bool  // the job never comes: it gives back the places that it has reserved
	snoozes   bool  // false: the job is cancelled if it is throttled, and waits for nothing
	handOver  int64 // for how long it may wait in its worker, µs
	minDelay  int64 // µs
	lead      int64 // how much earlier than its turn it is brought back, µs
	needs     []need

	decision decision

	// The batcher's:
	handOverEnd time.Time // how long it may wait in its worker
	asked       time.Time // waiting there, it asked last
	askAgain    time.Time // and asks again
	answered    chan decision
	abandoned   bool // the job does not wait for the answer any more; guarded by batcher.mu
}

// A need is one limit of a job, with its templates filled in.
type need struct {
	ref        Ref
	owner      string
	named      bool // the owner is not the job
	mode       Mode
	deadline   int64 // µs; 0: none
	id         int64 // of the row in jobs_keys
	dynamicRow int64 // dynamic windows: of the resource's row
}

// A verdict is the answer to an ask.
type decision struct {
	err          error
	granted      bool
	inWorker     bool  // not granted, and the job waits in its worker
	expectedWait int64 // present: how long that will take, µs
	limiter      Ref   // not granted: the limiter that makes it wait longest
	wake         int64 // not granted: when to come back
	fence        int64
	heldRows     int     // granted: how many rows of jobs_holders are to be released and renewed
	leased       bool    // granted: the rows have a lease
	fenced       bool    // granted: a slot was needed
	contended    []int64 // of these, the keys that others wait for
	waited       int64   // granted: since when it was first sent away, µs; by is the limiter that did it
	late         int64   // how much later than it should the job came back, µs; -1: it was not sent away
}

// A batch is what one transaction has read, and what it will write. Decisions change the former and note the latter.
type batch struct {
	now       int64
	fence     int64
	rows      map[int64]*keyRow
	dynamic   map[int64]*dynamicWindow // by the resource's row
	running   map[runID]bool           // jobs that are running in the database; nil: not asked
	waiters   map[waiterID]waiterRow   // rows of jobs_waiters of the jobs that ask
	keysOfJob map[int64][]int64        // of these jobs, the keys that known has or had

	handOverRoom int // how many more jobs may wait in their workers

	deadRows       []holderRow
	takenOver      []holderRow
	granted        map[holderID]holderRow
	removedWaiters map[waiterID]bool
	savedWaiters   map[waiterID]waiterRow

	unlocked []int64 // keys that were released without their lock, and that others wait for
}

type holderID struct {
	key   int64
	owner string
	job   int64
}

type runID struct {
	job       int64
	attempted int64 // µs
}

type waiterID struct{ key, job int64 }

type waiterRow struct {
	wake     int64
	earliest int64
	since    int64 // when it was sent away first; 0: now
	bucket   int64 // when the bucket begins in which a place is reserved, µs, whatever length buckets have later; -1: none
	inWorker bool
}

type holderRow struct {
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
	id, limiter   int64
	ref           Ref
	rules         rules
	state         string
	waiting       int64 // how many jobs wait for the key
	storedWaiting int64 // the same, as it was read
	slots         *slots
	window        *window
	keptOwners    map[string]bool // owners with a row that is kept
}

// decide answers the asks, in the order of their jobs.
func (b *batch) decide(reqs []*request, lease int64) {
	slices.SortStableFunc(reqs, func(x, y *request) int { return cmp.Compare(x.job, y.job) })
	for p := range b.waiters {
		b.keysOfJob[p.job] = append(b.keysOfJob[p.job], p.key)
	}
	for _, req := range reqs {
		b.decideOne(req, lease)
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
		for _, w := range row.slots.toBringBack(b.now, lead) {
			if !b.isWaiting(waiterID{id, w.job}) { // else its run has not ended yet, and River would not find it
				next[id] = append(next[id], w)
			}
		}
	}
	return next
}

// comes notes when a waiter comes back.
func (b *batch) setWake(key int64, w waiter, wake int64) {
	b.savedWaiters[waiterID{key, w.job}] = waiterRow{wake: wake, earliest: w.earliest, bucket: -1}
	w.wake = wake
	b.rows[key].slots.add(w)
}

// forget removes a waiter whose job never comes.
func (b *batch) removeFinished(p waiterID) {
	if row := b.rows[p.key]; row != nil && row.slots != nil {
		row.slots.remove(p.job)
		b.removeWaiter(p)
	}
}

// one answers one ask. Either all its needs are met and it takes them, or it takes nothing.
func (b *batch) decideOne(req *request, lease int64) {
	known := make([]waiterRow, len(req.needs))
	were := make([]bool, len(req.needs))
	for i, n := range req.needs {
		row := b.rows[n.id]
		known[i], were[i] = b.waiters[waiterID{n.id, req.job}]
		if were[i] && row.window != nil && known[i].bucket >= 0 {
			row.window.withdraw(known[i].bucket / row.window.width)
		}
		if row.slots != nil {
			row.slots.remove(req.job)
		}
	}
	if req.withdraws {
		b.removeJob(req.job)
		return
	}
	refused := make([]bool, len(req.needs))
	granted := true
	for i, n := range req.needs {
		refused[i] = !b.admits(req, n, were[i] && known[i].bucket >= 0, known[i].bucket)
		granted = granted && !refused[i]
		if !refused[i] && req.needsSeveralKeys(n.dynamicRow) { // what it takes of one key is not there for the other
			w := b.rows[n.id].window
			w.change(w.now, +1, 0)
		}
	}
	req.decision = decision{granted: granted, late: -1}
	for i, w := range known {
		if were[i] && !w.inWorker {
			req.decision.late = max(req.decision.late, b.now-w.wake)
		}
		if were[i] && granted && b.now-w.since > req.decision.waited {
			req.decision.waited, req.decision.limiter = b.now-w.since, req.needs[i].ref
		}
	}
	if !granted {
		b.refuse(req, refused, were)
	}
	for i, n := range req.needs {
		if !refused[i] && req.needsSeveralKeys(n.dynamicRow) {
			w := b.rows[n.id].window
			w.change(w.now, -1, 0)
		}
	}
	if granted {
		b.grant(req, lease)
	}
	for i, n := range req.needs {
		switch {
		case !were[i] || !granted && refused[i] && req.snoozes:
		case !granted && req.snoozes && known[i].bucket >= 0:
			b.keepReservation(req, n, known[i])
		default:
			b.removeWaiter(waiterID{n.id, req.job})
		}
	}
	if !granted {
		return
	}
	b.removeJob(req.job) // what it waited for under limits that it does not have any more
}

// forgetJob removes a job from all that wait.
func (b *batch) removeJob(job int64) {
	for _, key := range b.keysOfJob[job] {
		if p := (waiterID{key, job}); b.isWaiting(p) {
			b.removeWaiter(p)
		}
	}
}

// several reports whether the job needs more than one key of a dynamic window.
func (req *request) needsSeveralKeys(resource int64) bool {
	n := 0
	for i := range req.needs {
		if resource != 0 && req.needs[i].dynamicRow == resource {
			n++
		}
	}
	return n > 1
}

func (b *batch) isWaiting(p waiterID) bool {
	_, ok := b.waiters[p]
	return ok
}

// keepPlace lets a job that another limit sends away keep its place in a window: else it would be behind all who have one,
// each time. If the time of the place has come, it keeps no other job from it, and this one comes before those without a
// place when it is back.
func (b *batch) keepReservation(req *request, n need, w waiterRow) {
	window := b.rows[n.id].window
	if at := w.bucket / window.width; at > window.now {
		window.reserve(at)
	} else {
		w.bucket = window.begin(window.now - 1)
	}
	if w.inWorker = req.decision.inWorker; !w.inWorker {
		w.wake, w.earliest = req.decision.wake, req.decision.wake
	}
	b.saveWaiter(waiterID{n.id, req.job}, w)
}

// leave removes a job from the waiters of a key.
func (b *batch) removeWaiter(p waiterID) {
	delete(b.waiters, p)
	delete(b.savedWaiters, p)
	b.removedWaiters[p] = true
	if row := b.rows[p.key]; row != nil {
		row.addWaiting(-1)
	}
}

// join adds a job to the waiters of a key.
func (b *batch) saveWaiter(p waiterID, w waiterRow) {
	old, was := b.waiters[p]
	if !was {
		b.rows[p.key].addWaiting(+1)
		b.keysOfJob[p.job] = append(b.keysOfJob[p.job], p.key)
	}
	if old != w || !was {
		b.waiters[p], b.savedWaiters[p] = w, w
		delete(b.removedWaiters, p)
	}
}

func (r *keyRow) addWaiting(n int64) {
	r.waiting = max(r.waiting+n, 0)
	if r.slots != nil {
		r.slots.waiting = r.waiting
	}
}

func (b *batch) admits(req *request, n need, reserved bool, bucket int64) bool {
	row := b.rows[n.id]
	switch {
	case n.dynamicRow != 0:
		d := b.dynamic[n.dynamicRow]
		return d.admits(n.ref.Key, reserved && bucket/d.bucket <= d.now)
	case row.window != nil:
		return row.window.admits(row.rules.limit, reserved && bucket/row.window.width <= row.window.now)
	case n.mode == Release:
		return true
	}
	return row.slots.admits(n.owner, req.job, b.now)
}

func (b *batch) grant(req *request, lease int64) {
	b.fence++
	req.decision.fence = b.fence
	for _, n := range req.needs {
		row := b.rows[n.id]
		if row.window != nil {
			row.window.start()
			continue
		}
		req.decision.fenced = true
		h := holderRow{key: n.id, owner: n.owner, job: req.job, attempted: req.attempted, fence: b.fence}
		switch n.mode {
		case Acquire:
			row.slots.take(n.owner, b.now)
			if row.keptOwners[n.owner] {
				continue // its deadline stays what it was
			}
			row.keptOwners[n.owner] = true
			h.mode, h.until = keptRow, n.deadline
			b.granted[holderID{n.id, n.owner, req.job}] = h
			continue
		case Release:
			if !row.keptOwners[n.owner] {
				continue // nothing to release
			}
			delete(row.keptOwners, n.owner)
			maps.DeleteFunc(b.granted, func(s holderID, taken holderRow) bool { // what a job of this batch has taken
				return s.key == n.id && s.owner == n.owner && taken.mode == keptRow
			})
			h.since = row.slots.owners[n.owner] // for how long it will have been held
			b.takenOver = append(b.takenOver, h)
		default:
			row.slots.take(n.owner, b.now)
		}
		h.mode, h.until = relaxedRow, lease
		if req.strict {
			h.mode, h.until = strictRow, 0
		}
		b.granted[holderID{n.id, n.owner, req.job}] = h
		req.decision.heldRows++
		req.decision.leased = !req.strict
		if row.ref.Type == Mutex || row.waiting > 0 {
			req.decision.contended = append(req.decision.contended, n.id)
		}
	}
}

// sendAway computes when the job has a chance, and reserves its places in windows.
func (b *batch) refuse(req *request, refused, were []bool) {
	turn, by := int64(0), Ref{}
	slotsOnly := true
	for i, n := range req.needs {
		if !refused[i] {
			continue
		}
		if s := b.rows[n.id].slots; s != nil {
			if t := s.expectedWait(req.job, b.now, were[i]); t >= turn {
				turn, by = t, n.ref
			}
		} else {
			slotsOnly = false
		}
	}
	if !req.snoozes {
		req.decision.wake, req.decision.limiter = b.now+turn, by
		if !slotsOnly {
			b.findBuckets(req, refused, &req.decision, b.now+turn)
		}
		return
	}
	if slotsOnly && req.minDelay == 0 && req.handOver > 0 && turn <= req.handOver && b.handOverRoom > 0 {
		b.handOverRoom--
		req.decision.inWorker, req.decision.wake, req.decision.limiter, req.decision.expectedWait = true, b.now, by, turn
	} else {
		req.decision.wake, req.decision.limiter = b.now+max(turn-req.lead, req.minDelay, ms), by
	}
	var buckets []int64
	earliest := b.now + req.minDelay
	if !slotsOnly {
		buckets = b.findBuckets(req, refused, &req.decision, b.now+max(turn, req.minDelay))
		earliest = req.decision.wake
	}
	for i, n := range req.needs {
		if !refused[i] {
			continue
		}
		p := waiterID{n.id, req.job}
		row, w := b.rows[n.id], waiterRow{wake: req.decision.wake, earliest: earliest, bucket: -1, inWorker: req.decision.inWorker}
		w.since = b.waiters[p].since
		if old, ok := b.waiters[p]; ok && old.inWorker && w.inWorker && b.now-old.wake < inWorkerFor/2 {
			w = old // it said so not long ago
		}
		if row.slots != nil {
			row.slots.add(waiter{job: req.job, wake: w.wake, earliest: w.earliest, inWorker: w.inWorker})
		} else if at := buckets[i]; at >= 0 {
			row.window.reserve(at)
			w.bucket = row.window.begin(at)
		}
		b.saveWaiter(p, w)
	}
}

// places finds a time, not before from, at which every window that refuses the job has a place for it, and the buckets
// of that time: -1 where it is too far ahead to reserve one.
func (b *batch) findBuckets(req *request, refused []bool, result *decision, from int64) []int64 {
	buckets := make([]int64, len(req.needs))
	at := from
	for range 8 { // each round moves on to where a window has a place; more would not change what is reserved by much
		before := at
		for i, n := range req.needs {
			row := b.rows[n.id]
			buckets[i] = -1
			if row.window == nil || !refused[i] {
				continue
			}
			w := row.window
			first := max(at/w.width, w.now)
			if n.dynamicRow != 0 {
				buckets[i] = b.dynamic[n.dynamicRow].firstFree(n.ref.Key, first)
			} else {
				buckets[i] = w.firstFree(first, row.rules.limit)
			}
			if t := w.begin(buckets[i]); t >= at || result.limiter.Name == "" {
				at, result.limiter = max(at, t), n.ref
			}
			if w.tooFarAhead(buckets[i]) {
				buckets[i] = -1
			}
		}
		if at == before {
			break
		}
	}
	result.wake = max(result.wake, at)
	return buckets
}
