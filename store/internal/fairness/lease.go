package fairness

import "time"

// Leases come back from their holders, at no moment that the store can tell. With notices of releases, all instances ask at about
// the same time; without, each asks about every 50 ms. And an instance learns of its own releases first. So while others hold
// permits, an instance asks a random time after a release: in the first half of a short time or, if it got the last permit, in the
// second. Without notices, it keeps what it has got for a while. An instance that always comes first would never learn
// of others: while its own callers wait, it therefore asks late now and then.
const (
	longestLease = 12 * time.Millisecond // with notices; 6 round trips, if that is less
	longestPoll  = 75 * time.Millisecond
	lookInterval = 250 * time.Millisecond
	waitsLately  = 5 * time.Second
	leasesShort  = 2 * time.Second
	// waitsRemembered is how long a store remembers that a caller waits. It sends notices for so long.
	waitsRemembered = 2 * time.Minute
)

// Lease notes the answer to a request for a lease. others is how many permits other instances hold, and free how many are left.
func (t *Turns) Lease(granted bool, others, free int64, rtt time.Duration, now time.Time) {
	t.rtt = rtt
	switch {
	case free > 0:
		t.shortUntil, t.winsSince = time.Time{}, time.Time{}
	case others > 0:
		t.shortUntil = now.Add(leasesShort)
	}
	switch {
	case granted && free == 0 && t.winsSince.IsZero():
		t.winsSince = now
	case !granted:
		t.rejected = now
		if others > 0 && !t.got {
			t.winsSince = time.Time{}
		}
	}
	t.got = granted
}

// Released notes a notice of a release. It is sent only if a caller waits. If none has waited here for as long as the store
// remembers it, one of another instance does.
func (t *Turns) Released(now time.Time) {
	if now.Sub(t.rejected) > waitsRemembered {
		t.shortUntil = now.Add(leasesShort)
	}
}

// LookDue reports whether the instance, without knowing of others, is to ask late.
func (t *Turns) LookDue(now time.Time) bool {
	return !t.winsSince.IsZero() && now.Sub(t.winsSince) >= lookInterval && now.Sub(t.rejected) < waitsLately
}

// BeforeLease returns for how long to wait before a request for a lease. listening reports whether there are notices.
func (t *Turns) BeforeLease(listening bool, now time.Time) time.Duration {
	most, keeps := min(6*t.rtt, longestLease), time.Duration(0)
	if !listening {
		most, keeps = longestPoll, longestPoll/2
	}
	won := !t.winsSince.IsZero()
	switch {
	case !t.Short(now) && !t.LookDue(now):
		return 0
	case won && now.Sub(t.winsSince) < keeps || !won && !listening:
		return 0
	case !won:
		return t.early(most)
	}
	t.winsSince = now
	return t.late(most)
}
