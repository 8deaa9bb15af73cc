package limiter

// An adjuster is an owner whose grants can be adjusted to what the work has cost, because their permits are spent.
type adjuster interface {
	// adjust makes a grant of n permits one of cost permits, and returns the owner and the tag of the adjusted lease.
	// ok reports whether it did.
	adjust(n int, tag int64, cost int) (o owner, newTag int64, ok bool)
}

// Adjust charges what the work has really cost, if that is known only when it is done: bytes sent, rows read, tokens of
// a language model. It returns the lease as one of n permits; a negative n counts as 0. If too many permits were taken,
// the rest goes back to where it was taken from, unless it has come back by itself. If too few were taken, the others
// are taken now, even if they are not there: then the limiter owes them, and grants nothing until time has paid for
// them.
//
// Adjust works for windows, buckets and unlimited limiters, whose permits are spent, also in chains and in partitions
// that were not forgotten since. ok is false, and nothing changes, if the lease is not acquired, if its permits are
// only lent, as those of a [Concurrency] are, or if a custom limiter cannot adjust. Call it once, and use the lease
// that it returns: an older copy still has the old number of permits.
func (l Lease) Adjust(n int) (adjusted Lease, ok bool) {
	if !l.Acquired() {
		return l, false
	}
	a, ok := l.owner.(adjuster)
	if !ok {
		return l, false
	}
	n = max(n, 0)
	o, tag, ok := a.adjust(l.n, l.tag, n)
	if !ok {
		return l, false
	}
	return Lease{owner: o, n: n, tag: tag}, true
}

func (m *metadata) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	a, ok := m.owner.(adjuster)
	if !ok {
		return m, tag, false
	}
	o, tag, ok := a.adjust(n, tag, cost)
	newest := *m
	newest.owner = o
	return &newest, tag, ok
}

func (b *bucket) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	return b.adjustCost(n, cost, tag, func() int64 { return b.worth(tag) }, never)
}

func (o *ownBucket) adjust(n int, line int64, cost int) (owner, int64, bool) {
	b := (*bucket)(o)
	return b.adjustCost(n, cost, line, func() int64 { return b.leastSince(line) }, line)
}

// adjustCost changes what a grant has cost. Lines pay for what it is worth from now on before they pay for other
// permits, so that it is never worth too much; the new tag says so. See [bucket].
func (b *bucket) adjustCost(n, cost int, tag int64, worth func() int64, line int64) (owner, int64, bool) {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if b.state().closed {
		return b, tag, true
	}
	b.catchUp(now)
	unpaid := min(max(worth(), 0), int64(n), max(b.missing, 0))
	if cost < n {
		back := min(int64(n-cost), unpaid)
		b.back(now, int(back), func() int64 { return back }, line)
		unpaid -= back
	} else {
		unpaid += b.charge(now, cost-n)
	}
	return b, b.paid() + unpaid, true
}

// maxDebt caps what a limiter can owe, so that sums do not overflow.
const maxDebt = never / 2

// charge takes n permits, even if they are not there.
func (b *bucket) charge(now int64, n int) (taken int64) {
	if n == 0 {
		return 0
	}
	if b.missing == 0 {
		b.wake(b.at(now))
	}
	taken = min(int64(n), max(maxDebt-b.missing, 0))
	b.missing += taken
	b.spent += taken
	if !b.state().queue.empty() {
		arm(b, now) // the waiters have to wait longer
	}
	return taken
}

func (w *SlidingWindow) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	return w.adjustCost(n, int64(n), cost, tag)
}

// A windowCharge is the owner of a grant of a sliding window that was adjusted.
type windowCharge struct {
	window *SlidingWindow
	held   int64
}

func (c *windowCharge) release(int, int64) {}

func (c *windowCharge) refund(n int, tag int64) {
	c.window.refund(int(min(int64(n), c.held)), tag)
}

func (c *windowCharge) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	return c.window.adjustCost(n, c.held, cost, tag)
}

// adjustCost changes what a grant has cost, of which held permits are in the window. More permits are charged to the
// current segment, but go by the tag of the grant as long as its segment is in the window. A later refund then takes
// all out of the older segment, so permits come back too late rather than too early.
func (w *SlidingWindow) adjustCost(n int, held int64, cost int, tag int64) (owner, int64, bool) {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w, tag, true
	}
	w.catchUp(now)
	if _, ok := w.ageOf(tag); !ok {
		held = 0
	}
	if cost < n {
		back := min(int64(n-cost), held)
		w.giveBack(back, tag)
		if !w.queue.empty() {
			serve(w, now)
		}
		return &windowCharge{w, held - back}, tag, true
	}
	more := w.charge(now, int64(cost-n))
	if held == 0 {
		tag = w.line
	}
	return &windowCharge{w, held + more}, tag, true
}

// charge charges n permits to the current segment, even if they are not there.
func (w *SlidingWindow) charge(now, n int64) (taken int64) {
	if n > 0 && w.used() == 0 {
		w.wake(w.at(now))
	}
	taken = min(n, max(maxDebt-w.used(), 0))
	w.taken += taken
	if !w.queue.empty() {
		arm(w, now)
	}
	return taken
}

func (u *Unlimited) adjust(_ int, tag int64, _ int) (owner, int64, bool) { return u, tag, true }

// adjust adjusts the leases of all members that can. The others, which lend, keep what they hold.
func (c *chainLease) adjust(_ int, tag int64, cost int) (owner, int64, bool) {
	changed := &chainLease{leases: make([]Lease, len(c.leases)), granted: c.granted, before: c}
	did := false
	for i, l := range c.leases {
		adjusted, ok := l.Adjust(cost)
		changed.leases[i] = adjusted
		did = did || ok
	}
	if !did {
		return c, tag, false
	}
	return changed, tag, true
}

func (t *trackedLease) adjust(_ int, tag int64, cost int) (owner, int64, bool) {
	lease, ok := t.lease.Adjust(cost)
	if !ok {
		return t, tag, false
	}
	return &trackedLease{lease: lease, by: t.by, before: t}, tag, true
}
