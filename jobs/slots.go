package jobs

import (
	"cmp"
	"slices"
)

// slots is the state of a mutex, a semaphore or one key of them. Times are in µs since the epoch, by the database's clock.
//
// Free slots go to jobs in the order of their IDs. A waiter that is due soon keeps a free slot from a job with a higher
// ID that asks now, so that newcomers do not keep overtaking it. It keeps the slot for a grace period after its turn: for
// no longer than a slot is held on average, so that slots are not idle while River brings the job back.
//
// A hundred waiters of a queue that is paused would keep a free slot for a hundred grace periods, one after the other. So
// one waiter that misses its turn speaks for all that had asked by then: until they ask again, they keep no slot.
type slots struct {
	max          int64            // how many owners may hold a slot
	measuredHold int64            // the moving mean of the times for which slots were held; 0: not known yet
	owners       map[string]int64 // the owners that hold a slot, and since when
	otherOwners  int64            // an upper bound of the owners whose rows were not read
	waiters      []waiter         // by job; the first maxWaiters
	waiting      int64            // how many waiters there are in all
	learned      bool             // measuredHold has changed
	longest      int64            // the longest time for which an owner has held its slot by now; 0: not computed
	missed       int64            // the last turn that a waiter has missed; 0: none
	missedAt     int64            // the time for which missed was computed

	ends   []int64 // see slotEnds; nil: not computed since owners or measuredHold changed
	endsAt int64
}

// A waiter is a job that was throttled and comes back at wake, or waits in its worker.
type waiter struct {
	job      int64
	wake     int64
	earliest int64 // the job must not be brought back before
	inWorker bool
}

const (
	// maxWaiters bounds how many waiters of a key are read.
	maxWaiters = 1000

	ms = 1000
	// initialHold is the expected hold until one has been measured.
	initialHold = 10 * ms
	// A waiter that does not come back at its wake still counts for the expected hold, within these bounds.
	minGrace, maxGrace = 20 * ms, 3000 * ms
	// inWorkerFor is for how long the row of a job that waits in its worker counts. The row is written again after half
	// of it.
	inWorkerFor = 1000 * ms
	// maxBroughtBack bounds how many waiters are brought back at a time.
	maxBroughtBack = 24
	// maxPeriod bounds estimates, in µs.
	maxPeriod = int64(maxDelay / 1000)
)

// expectedHold returns for how long a slot is expected to be held.
func (s *slots) expectedHold(now int64) int64 {
	if s.measuredHold > 0 {
		return min(s.measuredHold, maxPeriod)
	}
	if s.longest == 0 {
		s.longest = initialHold
		for _, since := range s.owners {
			s.longest = max(s.longest, now-since)
		}
	}
	return s.longest
}

// learnHold adds a time for which a slot was held to the moving mean.
func (s *slots) learnHold(held int64) {
	held = max(held, 1)
	if s.measuredHold == 0 {
		s.measuredHold = held
	} else {
		s.measuredHold = max(s.measuredHold+(held-s.measuredHold)/8, 1)
	}
	s.learned, s.ends = true, nil
}

// due reports whether a waiter counts: the job waits in its worker, or comes back at most soon from now and is not
// later than grace.
func due(w waiter, now, soon, grace int64) bool {
	if w.inWorker {
		return w.wake >= now-inWorkerFor
	}
	return w.wake <= now+soon && w.wake >= now-grace
}

// lastMissed returns the last turn that a waiter has missed.
func (s *slots) lastMissed(now int64) int64 {
	if s.missedAt != now {
		s.missed, s.missedAt = 0, now
		grace := gracePeriod(s.expectedHold(now))
		for _, w := range s.waiters {
			if w.wake > s.missed && !due(w, now, maxPeriod, grace) {
				s.missed = w.wake
			}
		}
	}
	return s.missed
}

// keeps reports whether a waiter that is due keeps a slot from later jobs: it is in its worker, or has asked since the last
// turn that was missed. A job that comes back no earlier than it may, because it waits for a window or has a MinDelay, does
// not say when it asked. If a turn was missed, it keeps no slot: a queue that is paused can have such a job for each window.
func (w waiter) keeps(missed int64) bool {
	return missed == 0 || w.inWorker || w.earliest >= missed && w.earliest < w.wake
}

// gracePeriod returns for how long a waiter counts after its wake.
func gracePeriod(expectedHold int64) int64 { return min(max(expectedHold, minGrace), maxGrace) }

// admits reports whether the owner may have a slot for a job now. The job must not be among the waiters.
func (s *slots) admits(owner string, job, now int64) bool {
	if _, held := s.owners[owner]; held {
		return true
	}
	free := s.max - int64(len(s.owners)) - s.otherOwners
	if free <= 0 || len(s.waiters) == 0 {
		return free > 0
	}
	soon, missed := s.expectedHold(now), s.lastMissed(now)
	grace := gracePeriod(soon)
	for _, w := range s.waiters {
		if w.job >= job {
			break
		}
		if due(w, now, soon, grace) && w.keeps(missed) {
			free--
		}
	}
	return free > 0
}

// expectedWait estimates how long it takes until a job has a slot. known says that the job was a waiter before.
func (s *slots) expectedWait(job, now int64, known bool) int64 {
	ahead, grace, missed := int64(0), gracePeriod(s.expectedHold(now)), s.lastMissed(now)
	for _, w := range s.waiters {
		if w.job >= job {
			break
		}
		if due(w, now, maxPeriod, grace) && w.keeps(missed) {
			ahead++
		}
	}
	if n := int64(len(s.waiters)); !known && s.waiting > n && n > 0 && s.waiters[n-1].job < job {
		ahead += s.waiting - n
	}
	return s.waitBehind(ahead, now)
}

// waitBehind estimates how long it takes until a job has a slot if that many other jobs come first.
func (s *slots) waitBehind(ahead, now int64) int64 {
	hold, ends := s.expectedHold(now), s.slotEnds(now)
	n := min(s.max, int64(len(ends)))
	over := int64(len(ends)) - n // more than 0 if the limit was lowered
	rounds := ahead / n
	if rounds > maxPeriod/hold {
		return maxPeriod
	}
	return min(ends[over+ahead%n]+rounds*hold, maxPeriod)
}

// slotEnds returns the estimated time until each slot is free, shortest first.
func (s *slots) slotEnds(now int64) []int64 {
	if s.ends != nil && s.endsAt == now {
		return s.ends
	}
	hold, ends := s.expectedHold(now), s.ends[:0]
	for _, since := range s.owners {
		left := since + hold - now
		switch {
		case s.measuredHold == 0: // nothing is known but that it has lasted this long, so it may last as long again
			left = max(now-since, initialHold)
		case left <= 0: // a hold that is overdue is expected to last for as long again as it is overdue
			left = hold/8 - left
		}
		ends = append(ends, left)
	}
	for range min(s.max-int64(len(ends))-s.otherOwners, maxWaiters) {
		ends = append(ends, 0)
	}
	if len(ends) == 0 { // all are held by owners whose rows were not read
		ends = append(ends, hold)
	}
	slices.Sort(ends)
	if over := int64(len(ends)) - s.max; len(ends) > 0 { // a later job takes the first free slot, not the one of a slow holder
		first := ends[max(over, 0)]
		for i := range ends {
			ends[i] = min(ends[i], first+hold)
		}
	}
	s.ends, s.endsAt = ends, now
	return ends
}

// toBringBack returns the waiters whose turn is near and that would come back too late, because slots were released sooner
// than expected. Waiters that did not come back at their wake, or must not come back yet, are skipped. A free slot goes to
// the first waiter that comes if none keeps it, so these are brought back together, within a bound that doubles each time.
func (s *slots) toBringBack(now, lead int64) (next []waiter) {
	late := max(lead, 100*ms)
	ahead, turn, grace, missed := int64(0), s.waitBehind(0, now), gracePeriod(s.expectedHold(now)), s.lastMissed(now)
	most, more := maxBroughtBack, 0 // waiters that do not keep the slot
	for _, w := range s.waiters {
		if turn > late || len(next)-more == maxBroughtBack {
			break
		}
		switch {
		case w.inWorker || w.wake <= now+late:
			if !due(w, now, late, grace) {
				most++
				continue
			}
		case w.earliest > now:
			continue
		case turn > 0 || w.keeps(missed):
			next = append(next, w)
		case more < most:
			next, more = append(next, w), more+1
		}
		if turn == 0 && !w.keeps(missed) {
			continue
		}
		ahead++
		turn = s.waitBehind(ahead, now)
	}
	return next
}

// take gives a slot to the owner.
func (s *slots) take(owner string, now int64) {
	if _, held := s.owners[owner]; !held {
		s.owners[owner] = now
		s.ends = nil
	}
}

func (s *slots) find(job int64) (int, bool) {
	return slices.BinarySearchFunc(s.waiters, job, func(w waiter, job int64) int { return cmp.Compare(w.job, job) })
}

// remove removes a job from the waiters.
func (s *slots) remove(job int64) {
	if i, ok := s.find(job); ok {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
}

// add adds a waiter, or replaces the one of the same job.
func (s *slots) add(w waiter) {
	i, ok := s.find(w.job)
	if !ok {
		s.waiters = slices.Insert(s.waiters, i, w)
	}
	s.waiters[i] = w
}
