package limiter

// Permits of a bucket are spent, not lent.
func (b *bucket) release(int, int64) {}

// refund undoes a grant of a bucket whose state was shared. tag is what was spent after it.
func (b *bucket) refund(n int, tag int64) {
	b.takeBack(n, func() int64 { return b.worth(tag) }, never)
}

// worth returns what a grant with that tag is worth; see [bucket].
func (b *bucket) worth(tag int64) int64 { return tag - b.paid() }

// paid returns how many of all permits ever taken the lines have paid for; see [bucket].
func (b *bucket) paid() int64 { return b.spent - b.missing - b.state().refunded }

// ownBucket is a bucket with a state of its own as the owner of a lease, whose tag is the line of the grant.
type ownBucket bucket

func (o *ownBucket) release(int, int64) {}

func (o *ownBucket) refund(n int, line int64) {
	b := (*bucket)(o)
	b.takeBack(n, func() int64 { return b.leastSince(line) }, line)
}

// takeBack undoes a grant of n permits. line is that of the grant, or never if it is not known.
func (b *bucket) takeBack(n int, worth func() int64, line int64) {
	now := moment()
	b.lock()
	defer b.mu.Unlock()
	if b.state().closed {
		return
	}
	b.catchUp(now)
	if b.granted == 0 {
		b.own()
		b.state().granted--
	} else {
		b.granted--
	}
	b.back(now, n, worth, line)
}

// back gives back what a grant of n permits is worth, and serves the queue.
func (b *bucket) back(now int64, n int, worth func() int64, line int64) {
	back := min(max(worth(), 0), int64(n), b.missing)
	if back == 0 {
		return
	}
	b.own()
	b.missing -= back
	b.state().refunded += back
	b.lower(line, back)
	if !b.state().queue.empty() {
		serve(b, now)
	}
}

// A low is how many permits were missing right after a line. The lows of a state are in the order of their lines, and
// each is below all later ones: the others are the least of no time since a grant.
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

// addLow adds a low that is later than the others, and drops earlier lows that are not below it.
func addLow(lows []low, l low) []low {
	for len(lows) > 0 && lows[len(lows)-1].missing >= l.missing {
		lows = lows[:len(lows)-1]
	}
	return append(lows, l)
}

// leastSince returns the least that was missing right after any line later than that one, or never if none has passed.
// If the bucket has another state by now, it has been full since: then it is 0.
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

// lower lowers what was missing after later lines to what would have been missing without the grant.
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
