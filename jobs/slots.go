package jobs

import (
	"cmp"
	"slices"
)

// slots is the state of a mutex, a semaphore or one key of them. Times are in µs since the epoch, by the database's clock.
//
// Free slots go to jobs in the order of their IDs: one that is due soon, and has a lower ID, keeps a free slot from one
// that asks now, so that newcomers never overtake for long. But it keeps it for no longer than a slot is held on average,
// so that slots do not lie idle while River brings the job back.
type slots struct {
	max          int64
	measuredHold int64            // the mean time for which a slot is held; 0: not known yet
	owners       map[string]int64 // who holds a slot, and since when
	otherOwners  int64            // at most how many others hold one, if there are slots for all asks
	waiters      []waiter         // by job; the first maxWaiters of them
	waiting      int64            // how many there are in all
	learned      bool             // hold has changed
	longest      int64            // how long the longest of the owners has held its slot; 0: not computed

	ends   []int64 // see slotEnds; nil: not computed since owners or hold changed
	endsAt int64
}

// A waiter is a job that was sent away, or waits in its worker.
type waiter struct {
	job      int64
	wake     int64
	earliest int64 // it is not to be brought back before
	inWorker bool
}

const (
	// maxWaiters bounds how many waiters of a key are looked at.
	maxWaiters = 1000

	ms = 1000
	// firstHold is for how long a slot is expected to be held as long as nothing is known.
	initialHold = 10 * ms
	// A waiter that is not there when it should be counts for the mean time of holding, but no less and no more than this.
	minPatience, maxPatience = 20 * ms, 3000 * ms
	// presentFor is for how long it counts that a job waits in its worker. It says so again in half the time.
	inWorkerFor = 1000 * ms
)

// meanHold is how long a slot is held, as far as is known.
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

// learn takes one more time for which a slot was held into account.
func (s *slots) learnHold(held int64) {
	held = max(held, 1)
	if s.measuredHold == 0 {
		s.measuredHold = held
	} else {
		s.measuredHold = max(s.measuredHold+(held-s.measuredHold)/8, 1)
	}
	s.learned, s.ends = true, nil
}

// due reports whether a waiter counts: it is there, or should be soon.
func due(w waiter, now, soon, patience int64) bool {
	if w.inWorker {
		return w.wake >= now-inWorkerFor
	}
	return w.wake <= now+soon && w.wake >= now-patience
}

// patience is for how long a waiter counts that does not come.
func patience(meanHold int64) int64 { return min(max(meanHold, minPatience), maxPatience) }

// admits reports whether a job may have a slot for the owner now. The job itself is not among the waiters.
func (s *slots) admits(owner string, job, now int64) bool {
	if _, held := s.owners[owner]; held {
		return true
	}
	free := s.max - int64(len(s.owners)) - s.otherOwners
	if free <= 0 || len(s.waiters) == 0 {
		return free > 0
	}
	soon := s.expectedHold(now)
	patience := patience(soon)
	for _, w := range s.waiters {
		if w.job >= job {
			break
		}
		if due(w, now, soon, patience) {
			free--
		}
	}
	return free > 0
}

// turn returns how long it will take until a job has a slot, as far as can be told. known: the job has been among the
// waiters before.
func (s *slots) expectedWait(job, now int64, known bool) int64 {
	ahead, patience := int64(0), patience(s.expectedHold(now))
	for _, w := range s.waiters {
		if w.job >= job {
			break
		}
		if due(w, now, maxPeriod, patience) {
			ahead++
		}
	}
	if n := int64(len(s.waiters)); !known && s.waiting > n && n > 0 && s.waiters[n-1].job < job {
		ahead = s.waiting
	}
	return s.waitBehind(ahead, now)
}

// turnBehind is how long it will take until a job has a slot that so many others come before.
func (s *slots) waitBehind(ahead, now int64) int64 {
	hold, ends := s.expectedHold(now), s.slotEnds(now)
	n := min(s.max, int64(len(ends)))
	over := int64(len(ends)) - n // more hold a slot than there are: the limit was lowered
	rounds := ahead / n
	if rounds > maxPeriod/hold {
		return maxPeriod
	}
	return min(ends[over+ahead%n]+rounds*hold, maxPeriod)
}

// slotEnds returns when slots become free, from now, in order.
func (s *slots) slotEnds(now int64) []int64 {
	if s.ends != nil && s.endsAt == now {
		return s.ends
	}
	hold, ends := s.expectedHold(now), s.ends[:0]
	for _, since := range s.owners {
		left := since + hold - now
		if left <= 0 { // the longer it takes longer than expected, the longer it is expected to take
			left = hold/8 - left
		}
		ends = append(ends, left)
	}
	for int64(len(ends)) < s.max && len(ends) < maxWaiters {
		ends = append(ends, 0)
	}
	slices.Sort(ends)
	if over := int64(len(ends)) - s.max; len(ends) > 0 { // those who come later do not wait for a slot that takes longest
		first := ends[max(over, 0)]
		for i := range ends {
			ends[i] = min(ends[i], first+hold)
		}
	}
	s.ends, s.endsAt = ends, now
	return ends
}

// maxPull bounds how many waiters are brought back early at a time.
const maxBroughtBack = 24

// pull returns the waiters that are next, and would come back too late: the slots are released sooner than was expected.
// One that did not come when it should, or may not come yet, keeps no other from coming.
func (s *slots) toBringBack(now, lead int64) (next []waiter) {
	late := max(lead, 100*ms)
	ahead, turn, patience := int64(0), s.waitBehind(0, now), patience(s.expectedHold(now))
	for _, w := range s.waiters {
		if turn > late || len(next) == maxBroughtBack {
			break
		}
		switch {
		case w.inWorker || w.wake <= now+late:
			if !due(w, now, late, patience) {
				continue
			}
		case w.earliest <= now:
			next = append(next, w)
		default:
			continue
		}
		ahead++
		turn = s.waitBehind(ahead, now)
	}
	return next
}

// maxPeriod bounds estimates, in µs.
const maxPeriod = int64(maxDelay / 1000)

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

// leave removes a job from the waiters.
func (s *slots) remove(job int64) {
	if i, ok := s.find(job); ok {
		s.waiters = slices.Delete(s.waiters, i, i+1)
	}
}

// join puts a job among the waiters.
func (s *slots) add(w waiter) {
	i, ok := s.find(w.job)
	if ok {
		s.waiters[i] = w
		return
	}
	s.waiters = slices.Insert(s.waiters, i, w)
}
