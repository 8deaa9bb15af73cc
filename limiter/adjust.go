package limiter

// An adjuster is an owner whose permits are spent, so that it can be told later how
// many they really were.
type adjuster interface {
	// adjust makes a grant of n permits one of cost permits. It tells whether it could.
	adjust(n int, tag int64, cost int) bool
}

// Adjust charges what the work has really cost, where that is known only when it is
// done: bytes sent, rows read, tokens of a language model. It returns the lease as
// one of n permits; a negative n counts as 0. What was taken too much is given back
// to where it was taken from, as far as it has not come back by itself. What was
// taken too little is taken now, also if it is not there: the limiter owes it then,
// and grants nothing before time has paid for it.
//
// It works for windows, buckets and unlimited limiters, whose permits are spent, also
// through chains, and through partitions unless they were forgotten meanwhile. ok is
// false, and nothing changes, for a lease that is not acquired, and for permits that
// are only lent, as those of a [Concurrency] are, or that come from a limiter written
// elsewhere. Call it once, and use the lease that it returns: what an older copy says
// of Permits is what was estimated.
func (l Lease) Adjust(n int) (adjusted Lease, ok bool) {
	if !l.Acquired() {
		return l, false
	}
	n = max(n, 0)
	a, ok := l.owner.(adjuster)
	if !ok || !a.adjust(l.n, l.tag, n) {
		return l, false
	}
	l.n = n
	return l, true
}

func (m *metadata) adjust(n int, tag int64, cost int) bool {
	a, ok := m.owner.(adjuster)
	return ok && a.adjust(n, tag, cost)
}

func (b *bucket) adjust(n int, tag int64, cost int) bool {
	if cost < n {
		b.giveBack(n-cost, func() int64 { return b.worth(tag) }, never)
	} else {
		b.takeMore(cost - n)
	}
	return true
}

func (o *ownBucket) adjust(n int, line int64, cost int) bool {
	b := (*bucket)(o)
	if cost < n {
		b.giveBack(n-cost, func() int64 { return b.leastSince(line) }, line)
	} else {
		b.takeMore(cost - n)
	}
	return true
}

// mostOwed leaves room to reckon with: nobody lives to see it paid.
const mostOwed = never / 2

// takeMore takes permits whether they are there or not.
func (b *bucket) takeMore(n int) {
	now := clock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if n == 0 || b.state.closed {
		return
	}
	b.catchUp(now)
	if b.missing == 0 {
		b.wake(b.at(now))
	}
	b.missing = min(addUp(b.missing, int64(n)), mostOwed)
	b.spent += int64(n)
	if !b.state.queue.empty() {
		arm(b, now) // they have to wait longer
	}
}

func (w *SlidingWindow) adjust(n int, tag int64, cost int) bool {
	now := clock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n == cost || w.shared.closed {
		return true
	}
	w.catchUp(now)
	if cost < n {
		w.giveBack(int64(n-cost), tag)
		if !w.shared.queue.empty() {
			serve(w, now)
		}
		return true
	}
	if w.used == 0 {
		w.wake(w.at(now))
	}
	more := min(int64(cost-n), max(mostOwed-w.used, 0))
	w.used += more
	w.taken[w.current] += more
	if !w.shared.queue.empty() {
		arm(w, now)
	}
	return true
}

func (u *Unlimited) adjust(int, int64, int) bool { return true }

// adjust tells every member that can; the others, which lend, hold what they hold.
func (c *chainLease) adjust(_ int, _ int64, cost int) bool {
	did := false
	for _, l := range c.leases {
		if _, ok := l.Adjust(cost); ok {
			did = true
		}
	}
	return did
}

func (t *trackedLease) adjust(_ int, _ int64, cost int) bool {
	_, ok := t.lease.Adjust(cost)
	return ok
}
