package limiter

// An ownBucket is a bucket that owns a lease whose tag is a line, because the bucket had a state of its own at the
// grant.
type ownBucket bucket

// Permits of a bucket are spent, not lent.
func (b *bucket) release(int, int64)    {}
func (o *ownBucket) release(int, int64) {}

func (b *bucket) refund(n int, tag int64)     { b.undo(n, tag, false) }
func (o *ownBucket) refund(n int, line int64) { (*bucket)(o).undo(n, line, true) }

func (b *bucket) adjust(n int, tag int64, cost int) (owner, int64, bool) {
	return b.adjustCost(n, tag, false, cost)
}

func (o *ownBucket) adjust(n int, line int64, cost int) (owner, int64, bool) {
	return (*bucket)(o).adjustCost(n, line, true, cost)
}

// undo undoes a grant of n permits. tagIsLine reports whether the bucket had a state of its own at the grant.
func (b *bucket) undo(n int, tag int64, tagIsLine bool) {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if b.state().closed {
		return
	}
	b.catchUp(now)
	if b.granted == 0 {
		b.ownState().granted--
	} else {
		b.granted--
	}
	b.giveBack(now, b.worth(n, tag, tagIsLine), tag, tagIsLine)
}

// adjustCost changes what a grant of n permits has cost. The adjusted lease gets a tag as in a shared state, see
// [bucket]. The tag is that of a grant whose permits are the next that lines pay for:
//
//	tag = paid + worth
//
// So lines pay for the lease before they pay for permits that are taken later, and the lease is never worth too much.
func (b *bucket) adjustCost(n int, tag int64, tagIsLine bool, cost int) (owner, int64, bool) {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if b.state().closed {
		return b, tag, true
	}
	b.catchUp(now)
	unpaid := b.worth(n, tag, tagIsLine)
	if cost < n {
		back := min(int64(n-cost), unpaid)
		b.giveBack(now, back, tag, tagIsLine)
		unpaid -= back
	}
	if tagIsLine && unpaid > 0 {
		b.claim(unpaid, tag)
	}
	if cost > n {
		unpaid += b.charge(now, cost-n)
	}
	return b, b.paid() + unpaid, true
}

// worth returns what a grant of n permits is worth; see [bucket].
func (b *bucket) worth(n int, tag int64, tagIsLine bool) int64 {
	worth := tag - b.paid()
	if tagIsLine {
		worth = b.leastSince(tag)
		if s := b.state(); s.counts {
			worth = min(worth, s.countsFrom-b.paid())
		}
	}
	return min(max(worth, 0), int64(n), b.missing)
}

// paid returns how many of all permits ever taken the lines have paid for; see [bucket].
func (b *bucket) paid() int64 { return b.spent - b.missing - b.state().refunded }

// giveBack gives back n of the missing permits for a grant, and serves the queue.
func (b *bucket) giveBack(now, n, tag int64, tagIsLine bool) {
	if n == 0 {
		return
	}
	b.missing -= n
	b.ownState().refunded += n
	if tagIsLine {
		b.claim(n, tag)
	} else {
		b.lower(unknown, n) // the lows of all lines
	}
	if !b.state().queue.empty() {
		serve(b, now)
	}
}

// claim notes that n of the permits that leases with a line can give back are no longer theirs: one of them, with that
// line, has given them back, or gets another tag.
func (b *bucket) claim(n, line int64) {
	b.state().countsFrom -= n
	b.lower(line, n)
}

// charge takes n permits, even if fewer are free.
func (b *bucket) charge(now int64, n int) (taken int64) {
	if n == 0 {
		return 0
	}
	if b.missing == 0 {
		b.endIdleness(b.effectiveNow(now))
	}
	taken = min(int64(n), max(maxDebt-b.missing, 0))
	b.missing += taken
	b.spent += taken
	if !b.state().queue.empty() {
		arm(b, now) // the waiters have to wait longer
	}
	return taken
}

// giveBackUnleased gives back n of the missing permits, of no grant in particular, and serves the queue. For the grants, that
// is what a line does that brings n permits: see [bucket].
func (b *bucket) giveBackUnleased(now, n int64) {
	b.missing -= n
	if s := b.state(); !s.shared {
		s.refunded = 0
		s.addLow(low{line: b.line + 1, missing: b.missing})
		if !s.counts {
			s.counts, s.countsFrom = true, b.spent
		}
	}
	if !b.state().queue.empty() {
		serve(b, now)
	}
}

// A low is how many permits were missing right after a line. The lows of a state are in the order of their lines, and
// ascend: a low that is not below a later one is dropped, because leastSince returns the later one in its place.
type low struct{ line, missing int64 }

// maxLows is how many lows are kept. When there are more, the two oldest become one, so that too little is given back
// rather than too much.
const maxLows = 16

// noteLow adds the low of the line that has just passed.
func (b *bucket) noteLow() {
	s := b.state()
	if s.shared {
		return
	}
	s.refunded = 0
	if b.missing == 0 {
		s.counts = false
		s.lows = append(s.lows[:0], low{line: b.line})
		if s.family != nil {
			b.share()
		}
		return
	}
	s.addLow(low{line: b.line, missing: b.missing})
}

// addLow adds the low of a line or a Charge, and keeps no more than maxLows of them.
func (s *bucketState) addLow(l low) {
	s.lows = addLow(s.lows, l)
	if len(s.lows) > maxLows {
		s.lows[1].missing = s.lows[0].missing
		s.lows = s.lows[:copy(s.lows, s.lows[1:])]
	}
}

// addLow adds a low that is later than the others, and drops earlier lows that are not below it.
func addLow(lows []low, l low) []low {
	for len(lows) > 0 && lows[len(lows)-1].missing >= l.missing {
		lows = lows[:len(lows)-1]
	}
	return append(lows, l)
}

// leastSince returns the least that was missing right after any line later than the given one, or the constant never if
// no later line has passed. If the bucket has got another state since, it has been full, and the result is 0.
func (b *bucket) leastSince(line int64) int64 {
	if b.state().shared || line < b.state().ownSince {
		return 0
	}
	for _, l := range b.state().lows {
		if l.line > line {
			return l.missing
		}
	}
	return never
}

// lower subtracts by from the lows of all lines later than the given one.
func (b *bucket) lower(line, by int64) {
	lows := b.state().lows[:0]
	for _, l := range b.state().lows {
		if l.line > line {
			l.missing = max(l.missing-by, 0)
		}
		lows = addLow(lows, l)
	}
	b.state().lows = lows
}
