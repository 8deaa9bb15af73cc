package jobs

import (
	"cmp"
	"slices"
)

// slots is the state of a mutex, a semaphore or one key of them at the time now. Times are in µs since the epoch, by the
// database's clock.
//
// A free slot goes to the job that asks first. Jobs that were throttled ask in the order of their IDs, because each comes
// back a little before its turn, and waits for it in its worker. A job in its worker keeps a free slot from a job with a
// higher ID. A job that is snoozed keeps none: while its queue is paused, or all its workers are busy, it does not come.
type slots struct {
	now          int64
	limit        int64            // how many owners may hold a slot
	measuredHold int64            // the moving mean of the times for which slots were held; 0: not known yet
	owners       map[string]int64 // the owners that hold a slot, and since when
	otherOwners  int64            // an upper bound of the owners whose rows were not read
	waiters      []waiter         // by job; the first maxWaiters
	waiting      int64            // how many waiters there are in all
	changed      bool             // measuredHold or waiting is not what was read

	hold int64   // see expectedHold
	ends []int64 // see slotEnds; nil: neither is computed since a change
}

type waiterID struct{ Key, Job int64 }

// A waiter is a job that was throttled and comes back at Wake, or waits in its worker and said so at Wake: a row of jobs_waiters.
type waiter struct {
	waiterID
	Since    int64 // when the job was throttled first; 0: now
	Wake     int64
	Earliest int64 // the job must not be brought back before
	Bucket   int64 // when the bucket of the reservation begins, µs, because the length of buckets can change; -1: none
	InWorker bool
	Version  int64 // of the limiter's options when the job was throttled last
}

const (
	// maxWaiters bounds how many waiters of a key are read.
	maxWaiters = 1000

	ms = 1000
	// initialHold is the expected hold until one has been measured or has lasted longer.
	initialHold = 10 * ms
	// gracePeriod is for how long after its wake a snoozed job is expected to come: River looks for it each FetchPollInterval.
	gracePeriod = 2000 * ms
	// inWorkerFor is for how long the row of a job that waits in its worker counts. The row is written again after half
	// of it.
	inWorkerFor = 1000 * ms
	// nearTurn is how long before its turn a waiter is brought back.
	nearTurn = 100 * ms
	// maxBroughtBack bounds how many waiters are brought back at a time.
	maxBroughtBack = 24
	// maxPeriod bounds estimates, in µs.
	maxPeriod = int64(maxDelay / 1000)
)

// learnHold adds a time for which a slot was held to the moving mean.
func (s *slots) learnHold(held int64) {
	held = max(held, 1)
	if s.measuredHold == 0 {
		s.measuredHold = held
	} else {
		s.measuredHold = max(s.measuredHold+(held-s.measuredHold)/8, 1)
	}
	s.changed, s.ends = true, nil
}

// comes reports whether a waiter is expected to ask, and not overdue.
func (s *slots) comes(w waiter) bool {
	if w.InWorker {
		return w.Wake >= s.now-inWorkerFor
	}
	return w.Wake >= s.now-gracePeriod
}

// admits reports whether the owner may have a slot for a job now. The job must not be among the waiters.
func (s *slots) admits(owner string, job int64) bool {
	if _, held := s.owners[owner]; held {
		return true
	}
	free := s.limit - int64(len(s.owners)) - s.otherOwners
	for _, w := range s.waiters {
		if free <= 0 || w.Job >= job {
			break
		}
		if w.InWorker && s.comes(w) {
			free--
		}
	}
	return free > 0
}

// expectedWait estimates how long it takes until a job has a slot. If the job was among the waiters, it is not behind the ones
// that were not read.
func (s *slots) expectedWait(job int64, wasWaiter bool) int64 {
	ahead := int64(0)
	for _, w := range s.waiters {
		if w.Job >= job {
			break
		}
		if s.comes(w) {
			ahead++
		}
	}
	if n := int64(len(s.waiters)); !wasWaiter && s.waiting > n && n > 0 && s.waiters[n-1].Job < job {
		ahead += s.waiting - n
	}
	return s.waitBehind(ahead)
}

// waitBehind estimates how long it takes until a job has a slot if that many other jobs come first.
func (s *slots) waitBehind(ahead int64) int64 {
	hold, ends := s.slotEnds()
	n := min(s.limit, int64(len(ends)))
	over := int64(len(ends)) - n // more than 0 if the limit was lowered
	rounds := ahead / n
	if rounds > maxPeriod/hold {
		return maxPeriod
	}
	return min(ends[over+ahead%n]+rounds*hold, maxPeriod)
}

// slotEnds returns for how long a slot is expected to be held, and the estimated time until each slot is free, shortest first.
func (s *slots) slotEnds() (hold int64, ends []int64) {
	if s.ends != nil {
		return s.hold, s.ends
	}
	hold = min(s.measuredHold, maxPeriod)
	if hold == 0 { // nothing is known but that a slot was held for this long by now
		hold = initialHold
		for _, since := range s.owners {
			hold = max(hold, s.now-since)
		}
	}
	for _, since := range s.owners {
		left := since + hold - s.now
		switch {
		case s.measuredHold == 0: // it may last as long again
			left = max(s.now-since, initialHold)
		case left <= 0: // it is expected to last for as long again as it is overdue
			left = hold/8 - left
		}
		ends = append(ends, left)
	}
	for range min(s.limit-int64(len(ends))-s.otherOwners, maxWaiters) {
		ends = append(ends, 0)
	}
	if len(ends) == 0 { // all are held by owners whose rows were not read
		ends = append(ends, hold)
	}
	slices.Sort(ends)
	first := ends[max(int64(len(ends))-s.limit, 0)]
	for i := range ends { // a job does not wait for a slow holder if another slot is free sooner, and then again
		ends[i] = min(ends[i], first+hold)
	}
	s.hold, s.ends = hold, ends
	return hold, ends
}

// toBringBack returns the waiters whose turn is near and that would come back too late, because slots were released sooner
// than expected. If a waiter has not come lately, as while its queue is paused, the next ones may not come either. Then
// several are brought back for a slot that is free, and more of them the more have not come.
func (s *slots) toBringBack() (next []waiter) {
	most, missing := maxBroughtBack, slices.ContainsFunc(s.waiters, func(w waiter) bool { return !s.comes(w) && w.Wake >= s.now-4*gracePeriod })
	ahead, turn := int64(0), s.waitBehind(0)
	for _, w := range s.waiters {
		if turn > nearTurn || len(next) >= most {
			break
		}
		switch {
		case !s.comes(w):
			most++
			continue
		case w.InWorker || w.Wake <= s.now+nearTurn:
		case w.Earliest > s.now:
			continue
		default:
			next = append(next, w)
		}
		if w.InWorker || turn > 0 || !missing {
			ahead++
			turn = s.waitBehind(ahead)
		}
	}
	return next
}

// take gives a slot to the owner.
func (s *slots) take(owner string) {
	if _, held := s.owners[owner]; !held {
		s.owners[owner] = s.now
		s.ends = nil
	}
}

func (s *slots) find(job int64) (int, bool) {
	return slices.BinarySearchFunc(s.waiters, job, func(w waiter, job int64) int { return cmp.Compare(w.Job, job) })
}

// remove removes a job from the waiters.
func (s *slots) remove(job int64) {
	if i, ok := s.find(job); ok {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
}

// add adds a waiter, or replaces the one of the same job.
func (s *slots) add(w waiter) {
	i, ok := s.find(w.Job)
	if !ok {
		s.waiters = slices.Insert(s.waiters, i, w)
	}
	s.waiters[i] = w
}
