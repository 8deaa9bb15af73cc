package limiter

// An adjuster is an owner whose permits are spent, so that it can be told later how
// many they really were.
type adjuster interface {
	// adjust makes a grant of n permits one of cost permits, and returns by what the
	// owner knows it from now on. It tells whether it could.
	adjust(n int, tag int64, cost int) (o owner, newTag int64, ok bool)
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

// adjustCost changes what a grant has cost. From then on the lines pay for it first,
// whatever was taken before, so what it is worth is never too much; and the tag is
// as [bucket.refund] wants it.
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

// maxDebt leaves room to reckon with: nobody lives to see it paid.
const maxDebt = never / 2

// charge takes permits whether they are there or not.
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
		arm(b, now) // they have to wait longer
	}
	return taken
}

func (w *SlidingWindow) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	return w.adjustCost(n, int64(n), cost, tag)
}

// A windowCharge owns a grant that was adjusted: of its permits so many were still
// in the window then.
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

// adjustCost changes what a grant has cost of which held permits were in the window
// when it was last looked at. What is charged besides is in another segment, and
// goes by the tag of the first for as long as that is in the window: what is given
// back comes out of the older segment then, which has the others leave later.
func (w *SlidingWindow) adjustCost(n int, held int64, cost int, tag int64) (owner, int64, bool) {
	now := moment()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared.closed {
		return w, tag, true
	}
	w.catchUp(now)
	if _, ok := w.ageOf(tag); !ok {
		held = 0
	}
	if cost < n {
		back := min(int64(n-cost), held)
		w.giveBack(back, tag)
		if !w.shared.queue.empty() {
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

// charge charges the current segment, whether there is anything left or not.
func (w *SlidingWindow) charge(now, n int64) (taken int64) {
	if n > 0 && w.used() == 0 {
		w.wake(w.at(now))
	}
	taken = min(n, max(maxDebt-w.used(), 0))
	w.taken += taken
	if !w.shared.queue.empty() {
		arm(w, now)
	}
	return taken
}

func (u *Unlimited) adjust(_ int, tag int64, _ int) (owner, int64, bool) { return u, tag, true }

// adjust tells every member that can; the others, which lend, hold what they hold.
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
