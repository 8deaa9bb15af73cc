package jobs

import (
	"cmp"
	"slices"
)

// decide answers the requests in the order of their jobs. Each gets all its needs or nothing.
func (b *batch) decide(reqs []*request, lease int64) {
	slices.SortStableFunc(reqs, func(x, y *request) int { return cmp.Compare(x.job, y.job) })
	for id := range b.waiters {
		b.keysOfJob[id.Job] = append(b.keysOfJob[id.Job], id.Key)
	}
	for _, req := range reqs {
		b.decideOne(req, lease)
	}
}

// A candidate is a need of the request that is being decided.
type candidate struct {
	need
	row     *keyRow
	waiter  waiter
	waited  bool // the job was a waiter of the key, and waiter is its row
	refused bool
	bucket  int64 // when the bucket begins in which to reserve, µs; -1: none
}

func (b *batch) decideOne(req *request, lease int64) {
	candidates := b.candidates(req)
	granted := b.admitAll(req, candidates)
	req.decision = decision{granted: granted}
	for _, c := range candidates {
		if c.waited && granted && b.now-c.waiter.Since > req.decision.waited {
			req.decision.waited, req.decision.limiter = b.now-c.waiter.Since, c.ref
		}
	}
	if !granted {
		b.refuse(req, candidates)
		return
	}
	b.grant(req, candidates, lease)
	b.removeJob(req.job, nil)
}

// candidates returns the needs of a request with their rows, without the job's own reservations and waits.
func (b *batch) candidates(req *request) []candidate {
	all := make([]candidate, len(req.needs))
	for i, n := range req.needs {
		c := candidate{need: n, row: b.rows[n.id], bucket: -1}
		c.waiter, c.waited = b.waiters[waiterID{n.id, req.job}]
		if c.waited && c.row.window != nil && c.waiter.Bucket >= 0 {
			c.row.window.Withdraw(c.waiter.Bucket)
		}
		if c.row.slots != nil {
			c.row.slots.remove(req.job)
		}
		all[i] = c
	}
	return all
}

// admitAll reports whether all candidates are admitted, and marks the ones that are refused. The windows of the others count the
// job from then on, because what it takes of one key of a dynamic window is not there for another key.
func (b *batch) admitAll(req *request, candidates []candidate) bool {
	granted := true
	for i := range candidates {
		c := &candidates[i]
		c.refused = !b.admits(c, req.job)
		granted = granted && !c.refused
		if !c.refused && c.row.window != nil {
			c.row.window.Start()
		}
	}
	return granted
}

func (b *batch) admits(c *candidate, job int64) bool {
	switch {
	case c.row.window != nil:
		return c.row.window.Admits(c.waited && c.waiter.Bucket >= 0 && c.row.window.IsDue(c.waiter.Bucket))
	case c.mode == Release:
		return true
	}
	return c.row.slots.admits(c.owner, job)
}

func (b *batch) grant(req *request, candidates []candidate, lease int64) {
	b.fence++
	req.decision.fence = b.fence
	for _, c := range candidates {
		if c.row.slots != nil {
			req.decision.fenced = true
			b.grantSlot(req, c, lease)
		}
	}
}

// grantSlot gives the job or its owner a slot, or with mode Release the slot that its owner has kept.
func (b *batch) grantSlot(req *request, c candidate, lease int64) {
	row := c.row
	keptBy, kept := row.keptOwners[c.owner]
	h := holderRow{holderID: holderID{c.id, c.owner, req.job}, Attempted: req.attempted, Fence: b.fence}
	switch c.mode {
	case Acquire:
		row.slots.take(c.owner)
		if !kept { // otherwise the deadline stays what it was
			row.keptOwners[c.owner] = req.job
			h.Mode, h.Until = keptRow, c.deadline
			b.granted[h.holderID] = h
			req.decision.kept = true
		}
		return
	case Release:
		if !kept {
			return
		}
		old := holderID{c.id, c.owner, keptBy}
		delete(row.keptOwners, c.owner)
		delete(b.granted, old)               // it is not written yet,
		b.deadRows = append(b.deadRows, old) // or it is
		h.Since = row.slots.owners[c.owner]  // the new row counts as held since then
	default:
		row.slots.take(c.owner)
	}
	h.Mode, h.Until = relaxedRow, lease
	if req.strict {
		h.Mode, h.Until = strictRow, 0
	}
	b.granted[h.holderID] = h
	req.decision.heldRows++
	req.decision.leased = !req.strict
	if row.ref.Type == Mutex || row.slots.waiting > 0 {
		req.decision.contended = append(req.decision.contended, c.id)
	}
}

// refuse computes when the job can start. If the job is snoozed, it becomes a waiter of what refuses it, with reservations
// in windows.
func (b *batch) refuse(req *request, candidates []candidate) {
	wait, slotsOnly := int64(0), true
	for _, c := range candidates {
		if c.refused && c.row.window != nil {
			slotsOnly = false
		} else if c.refused {
			if w := c.row.slots.expectedWait(req.job, c.waited); w >= wait {
				wait, req.decision.limiter = w, c.ref
			}
		}
	}
	earliest := b.now
	switch {
	case !req.snoozes:
		req.decision.wake = b.now + wait
	case slotsOnly && req.minDelay == 0 && req.handOver > 0 && wait <= req.handOver && b.handOverRoom > 0:
		b.handOverRoom--
		req.decision.inWorker, req.decision.wake, req.decision.expectedWait = true, b.now, wait
	default:
		req.decision.wake = b.now + max(wait, req.minDelay, ms)
		earliest += req.minDelay
	}
	if !slotsOnly {
		b.findBuckets(&req.decision, candidates, max(b.now+wait, earliest))
		earliest = req.decision.wake
	}
	for _, c := range candidates {
		if !c.refused && c.row.window != nil {
			c.row.window.TakeBack()
		}
		switch {
		case c.refused && req.snoozes:
			b.addWaiter(req, c, earliest)
		case !c.waited:
		case req.snoozes && c.waiter.Bucket >= 0:
			b.keepReservation(req, c)
		default:
			b.removeWaiter(waiterID{c.id, req.job})
		}
	}
	b.removeJob(req.job, req.needs)
}

// addWaiter makes the job a waiter of a key that refuses it, with a reservation if the key has a window.
func (b *batch) addWaiter(req *request, c candidate, earliest int64) {
	w := waiter{waiterID: waiterID{c.id, req.job}, Wake: req.decision.wake, Earliest: earliest, Since: c.waiter.Since, Bucket: -1,
		InWorker: req.decision.inWorker, Version: c.row.rules.version}
	if c.waited && c.waiter.InWorker && w.InWorker && b.now-c.waiter.Wake < inWorkerFor/2 {
		w = c.waiter // the row is recent enough: it need not be written
	}
	if c.row.slots != nil {
		c.row.slots.add(w)
	} else if w.Earliest = b.now + req.minDelay; c.bucket >= 0 {
		c.row.window.Reserve(c.bucket)
		w.Bucket = c.bucket
	}
	b.saveWaiter(w)
}

// findBuckets finds a time, not before from, at which every window that refuses the job has room for it. It sets the
// bucket of each candidate, to -1 where that time is too far ahead for a reservation.
func (b *batch) findBuckets(result *decision, candidates []candidate, from int64) {
	at := from
	for range 8 { // each round moves on to where a window has room; more rounds hardly change the result
		before := at
		for i := range candidates {
			c := &candidates[i]
			w := c.row.window
			if w == nil || !c.refused {
				continue
			}
			c.bucket = w.FirstFree(at)
			if c.bucket >= at || result.limiter.Name == "" {
				at, result.limiter = max(at, c.bucket), c.ref
			}
			if w.TooFarAhead(c.bucket) {
				c.bucket = -1
			}
		}
		if at == before {
			break
		}
	}
	result.wake = max(result.wake, at)
}

// keepReservation lets a job that another limit refuses keep its reservation in a window. Otherwise it would be behind all
// jobs that have one, each time. A reservation whose bucket has begun reserves no place, so that the place does not stay
// unused. It only says that the job is let in before jobs without a reservation.
func (b *batch) keepReservation(req *request, c candidate) {
	w := c.waiter
	if c.row.window.IsDue(w.Bucket) {
		w.Bucket = c.row.window.Passed()
	} else {
		c.row.window.Reserve(w.Bucket)
	}
	w.Version = c.row.rules.version
	if w.InWorker = req.decision.inWorker; !w.InWorker {
		w.Wake, w.Earliest = req.decision.wake, req.decision.wake
	}
	b.saveWaiter(w)
}
