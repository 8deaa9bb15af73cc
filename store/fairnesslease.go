package store

import "time"

// leaseTurns are the turns of a concurrency limiter. With notices of releases, all instances ask at about the same time;
// without, each polls. An instance that has got several leases in a row, or has got leases for a while, asks later than
// its rivals.
type leaseTurns struct {
	free      int64         // permits, at the last answer
	wins      int           // leases granted in a row
	winsSince time.Time     // when the first of them was
	rtt       time.Duration // average duration of a call
}

const (
	// With notices, an instance asks later by at most six round-trip times; this bound is itself at least minLeaseDelay and
	// at most maxLeaseDelay. Without notices, it asks later by at most maxPollDelay.
	minLeaseDelay = 2 * time.Millisecond
	maxLeaseDelay = 12 * time.Millisecond
	maxPollDelay  = 75 * time.Millisecond
	// leaseRivalsFor is how long rivals of a concurrency limiter are assumed to wait; waitsRemembered is how long a store
	// remembers that a caller waits.
	leaseRivalsFor  = 2 * time.Second
	waitsRemembered = 2 * time.Minute
)

// observeLeases is observe for a concurrency limiter. others is how many permits rivals hold.
func (f *fairness) observeLeases(others, free int64, granted bool, rtt time.Duration, now time.Time) {
	l := &f.leases
	l.free = free
	l.rtt += (rtt - l.rtt) / 4
	switch {
	case granted:
		if l.wins++; l.wins == 1 {
			l.winsSince = now
		}
		f.countTurn(true)
	case others > 0: // else this instance holds all
		l.wins = 0
		f.countTurn(false)
	}
	if others > 0 {
		f.rivalUntil(now.Add(leaseRivalsFor))
	}
	if !granted {
		f.lastWaited = now
	}
}

// observeRelease is called for a notice of a release, which is sent only if a caller waits. If no caller has waited here
// for as long as the store remembers waiting callers, a caller of another instance waits.
func (f *fairness) observeRelease(now time.Time) {
	if now.Sub(f.lastWaited) > waitsRemembered {
		f.startWaiting(now)
		f.rivalUntil(now.Add(leaseRivalsFor))
	}
}

// leasePause returns how long to wait before asking.
func (f *fairness) leasePause(listening bool, now time.Time) time.Duration {
	l := &f.leases
	switch {
	case l.free > 0:
		return 0
	case listening:
		most := min(max(6*l.rtt, minLeaseDelay), maxLeaseDelay)
		if yields := f.yields(l.hasHadEnough(true, now), now); yields || f.hasRivals(now) {
			return f.delay(most, yields)
		}
	case f.yields(l.hasHadEnough(false, now), now):
		l.wins = 0
		return f.delay(maxPollDelay, true)
	}
	return 0
}

// hasHadEnough reports whether it is the rivals' turn.
func (l *leaseTurns) hasHadEnough(listening bool, now time.Time) bool {
	if listening {
		return l.wins > 1
	}
	return l.wins > 0 && now.Sub(l.winsSince) >= maxPollDelay/2
}

// leaseNewcomerPause is newcomerPause for a concurrency limiter.
func (f *fairness) leaseNewcomerPause(listening bool, now time.Time) time.Duration {
	if f.leases.free > 0 || !f.tracks(now) || !f.leases.hasHadEnough(listening, now) {
		return 0
	}
	if f.hasRivals(now) || f.lookDue(f.winsUnopposed+1, now) {
		return 1 // serveLoop knows for how long
	}
	return 0
}
