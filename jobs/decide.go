package jobs

import (
	"cmp"
	"slices"
)

// decide answers the requests in the order of their jobs. Each gets all its needs or nothing.
func (b *batch) decide(reqs []*request, lease int64) {
	slices.SortStableFunc(reqs, func(x, y *request) int { return cmp.Compare(x.job, y.job) })
	for id := range b.waiters {
		b.keysOfJob[id.job] = append(b.keysOfJob[id.job], id.key)
	}
	for _, req := range reqs {
		b.decideOne(req, lease)
	}
}

// A candidate is a need of the request that is being decided.
type candidate struct {
	need
	row     *keyRow
	waiter  waiterRow
	waited  bool // the job was a waiter of the key, and waiter is its row
	refused bool
	counted bool  // the window counts the job already, for its other keys of the same dynamic window
	bucket  int64 // when the bucket begins in which to reserve, µs; -1: none
}

func (b *batch) decideOne(req *request, lease int64) {
	candidates := b.candidates(req)
	granted := b.admitAll(req, candidates)
	req.decision = decision{granted: granted, late: -1}
	for _, c := range candidates {
		if c.waited && !c.waiter.inWorker {
			req.decision.late = max(req.decision.late, b.now-c.waiter.wake)
		}
		if c.waited && granted && b.now-c.waiter.since > req.decision.waited {
			req.decision.waited, req.decision.limiter = b.now-c.waiter.since, c.ref
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
		if c.waited && c.row.window != nil && c.waiter.bucket >= 0 {
			c.row.window.Withdraw(c.waiter.bucket)
		}
		if c.row.slots != nil {
			c.row.slots.remove(req.job)
		}
		all[i] = c
	}
	return all
}

// needsSeveralKeys reports whether the job needs more than one key of a dynamic window.
func (req *request) needsSeveralKeys(dynamicRow int64) bool {
	n := 0
	for i := range req.needs {
		if dynamicRow != 0 && req.needs[i].dynamicRow == dynamicRow {
			n++
		}
	}
	return n > 1
}

// admitAll reports whether all candidates are admitted, and marks the ones that are refused.
func (b *batch) admitAll(req *request, candidates []candidate) bool {
	granted := true
	for i := range candidates {
		c := &candidates[i]
		c.refused = !b.admits(c, req.job)
		granted = granted && !c.refused
		if !c.refused && req.needsSeveralKeys(c.dynamicRow) { // what the job takes of one key is not there for the other
			c.row.window.Start()
			c.counted = true
		}
	}
	return granted
}

func (b *batch) admits(c *candidate, job int64) bool {
	switch {
	case c.row.window != nil:
		return c.row.window.Admits(c.waited && c.waiter.bucket >= 0 && c.row.window.IsDue(c.waiter.bucket))
	case c.mode == Release:
		return true
	}
	return c.row.slots.admits(c.owner, job)
}

func (b *batch) grant(req *request, candidates []candidate, lease int64) {
	b.fence++
	req.decision.fence = b.fence
	for _, c := range candidates {
		switch {
		case c.row.slots != nil:
			req.decision.fenced = true
			b.grantSlot(req, c, lease)
		case !c.counted:
			c.row.window.Start()
		}
	}
}

// grantSlot gives the job or its owner a slot, or with mode Release the slot that its owner has kept.
func (b *batch) grantSlot(req *request, c candidate, lease int64) {
	row := c.row
	keptBy, kept := row.keptOwners[c.owner]
	h := holderRow{holderID: holderID{c.id, c.owner, req.job}, attempted: req.attempted, fence: b.fence}
	switch c.mode {
	case Acquire:
		row.slots.take(c.owner)
		if !kept { // otherwise the deadline stays what it was
			row.keptOwners[c.owner] = req.job
			h.mode, h.until = keptRow, c.deadline
			b.granted[h.holderID] = h
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
		h.since = row.slots.owners[c.owner]  // the new row counts as held since then
	default:
		row.slots.take(c.owner)
	}
	h.mode, h.until = relaxedRow, lease
	if req.strict {
		h.mode, h.until = strictRow, 0
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
		req.decision.wake = b.now + max(wait-req.lead, req.minDelay, ms)
		earliest += req.minDelay
	}
	if !slotsOnly {
		b.findBuckets(&req.decision, candidates, max(b.now+wait, earliest))
		earliest = req.decision.wake
	}
	for _, c := range candidates {
		if c.counted {
			c.row.window.TakeBack()
		}
		switch {
		case c.refused && req.snoozes:
			b.addWaiter(req, c, earliest)
		case !c.waited:
		case req.snoozes && c.waiter.bucket >= 0:
			b.keepReservation(req, c)
		default:
			b.removeWaiter(waiterID{c.id, req.job})
		}
	}
	b.removeJob(req.job, req.needs)
}

// addWaiter makes the job a waiter of a key that refuses it, with a reservation if the key has a window.
func (b *batch) addWaiter(req *request, c candidate, earliest int64) {
	w := waiterRow{wake: req.decision.wake, earliest: earliest, since: c.waiter.since, bucket: -1, inWorker: req.decision.inWorker,
		version: c.row.rules.version}
	if c.waited && c.waiter.inWorker && w.inWorker && b.now-c.waiter.wake < inWorkerFor/2 {
		w = c.waiter // the row is recent enough: it need not be written
	}
	if c.row.slots != nil {
		c.row.slots.add(waiter{job: req.job, wake: w.wake, earliest: w.earliest, inWorker: w.inWorker})
	} else if w.earliest = b.now + req.minDelay; c.bucket >= 0 {
		c.row.window.Reserve(c.bucket)
		w.bucket = c.bucket
	}
	b.saveWaiter(waiterID{c.id, req.job}, w)
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
// jobs that have one, each time. If the reserved bucket has begun, the reservation keeps no other job out, and this job
// comes before jobs without a reservation when it is back.
func (b *batch) keepReservation(req *request, c candidate) {
	w := c.waiter
	if c.row.window.IsDue(w.bucket) {
		w.bucket = c.row.window.Passed()
	} else {
		c.row.window.Reserve(w.bucket)
	}
	w.version = c.row.rules.version
	if w.inWorker = req.decision.inWorker; !w.inWorker {
		w.wake, w.earliest = req.decision.wake, req.decision.wake
	}
	b.saveWaiter(waiterID{c.id, req.job}, w)
}
