package limiter

// A chain that came to nothing may take back what it took some lines ago, and it
// should then be as if it had never taken it. What the lines have brought since
// would have been lost in a bucket that was fuller, so what a grant of n is still
// worth is the least that was missing after any line since, and at most n.

// Permits of a bucket are spent, not lent.
func (b *bucket) release(int, int64) {}

// refund is for a grant of a bucket without a state of its own, which remembers
// no lines. There the lines pay for the permits that were taken first: a grant is
// worth nothing any more when all that was taken up to it, which is its tag, has
// been paid for. What was refunded counts as taken first of all once a line has
// gone by. That may be less than it is worth, and is never more.
func (b *bucket) refund(n int, tag int64) {
	b.takeBack(n, func() int64 { return b.worth(tag) }, never)
}

func (b *bucket) worth(tag int64) int64 { return tag - b.paid() }

// paid is how much of all that was ever taken the lines have paid for.
func (b *bucket) paid() int64 { return b.spent - b.missing - b.state().refunded }

// ownBucket is a bucket with a state of its own, as the owner of a lease: it knows
// what was missing after the lines that have gone by. The tag is the line on which
// the permits were taken.
type ownBucket bucket

func (o *ownBucket) release(int, int64) {}

func (o *ownBucket) refund(n int, line int64) {
	b := (*bucket)(o)
	b.takeBack(n, func() int64 { return b.leastSince(line) }, line)
}

// takeBack undoes a grant that is worth so much, taken on that line.
func (b *bucket) takeBack(n int, worth func() int64, line int64) {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if b.state().closed {
		return
	}
	b.catchUp(now)
	if b.granted == 0 {
		b.common()
		b.state().granted--
	} else {
		b.granted--
	}
	b.back(now, n, worth, line)
}

func (b *bucket) back(now int64, n int, worth func() int64, line int64) {
	back := min(max(worth(), 0), int64(n), b.missing)
	if back == 0 {
		return
	}
	b.common()
	b.missing -= back
	b.state().refunded += back
	b.lower(line, back)
	if !b.state().queue.empty() {
		serve(b, now)
	}
}

// A low is how many permits were missing just after a line had brought some. They
// are kept in order of their lines, each below all later ones: the others are of
// no interest to anybody any more.
type low struct{ line, missing int64 }

// maxLows is how many lows are kept; beyond, the oldest ones are counted as one,
// which gives back too little rather than too much.
const maxLows = 16

// noteLow remembers the line that has just gone by.
func (b *bucket) noteLow() {
	s := b.state()
	if s.shared {
		return
	}
	s.refunded = 0
	if b.missing == 0 {
		s.lows = append(s.lows[:0], low{line: b.line})
		if s.family != nil {
			b.share()
		}
		return
	}
	s.lows = addLow(s.lows, low{line: b.line, missing: b.missing})
	if len(s.lows) > maxLows {
		s.lows[1].missing = s.lows[0].missing
		s.lows = s.lows[:copy(s.lows, s.lows[1:])]
	}
}

// addLow adds a low that is later than the others, and drops those that are not
// below it.
func addLow(lows []low, l low) []low {
	for len(lows) > 0 && lows[len(lows)-1].missing >= l.missing {
		lows = lows[:len(lows)-1]
	}
	return append(lows, l)
}

// leastSince is the least that was missing after any line later than that. The bucket
// has been full since, where it has another state by now.
func (b *bucket) leastSince(line int64) int64 {
	if b.state().shared || line < b.state().since {
		return 0
	}
	for _, l := range b.state().lows {
		if l.line > line {
			return l.missing
		}
	}
	return never
}

// lower has what was missing after later lines be less: as it would have been.
func (b *bucket) lower(line, by int64) {
	lows := b.state().lows[:0]
	for _, l := range b.state().lows {
		if line == never || l.line > line {
			l.missing = max(l.missing-by, 0)
		}
		lows = addLow(lows, l)
	}
	b.state().lows = lows
}
