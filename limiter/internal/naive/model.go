// Package naive is the reference that the limiters are tested against: the four limiters as simply as they can be
// written, from docs/semantics.md alone. It is slow, has no clock (the caller gives it the time) and remembers every
// grant. Tests compare it with the real limiters, and give it a [Fault] to check that they would notice.
package naive

import (
	"slices"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
)

// A spent is a number of permits that were taken and have not come back.
type spent struct {
	from time.Duration // the grid line
	n    int
}

// A Model is one limiter. It is not safe for concurrent use.
type Model struct {
	Kind   limitertest.Kind
	Limits limitertest.Limits
	Fault  Fault
	Late   bool // answers are given when Advance is called, not on the grid lines that it goes through

	now       time.Duration // the real clock, since construction
	advanced  time.Duration // when Advance was last called
	line      time.Duration // the last grid line that was reached
	lines     int           // how many that were
	spent     []spent       // oldest first
	queue     []*Request    // in order of arrival
	closed    bool
	successes int64
	failures  int64
	idleSince time.Duration // while nothing is spent
	idleVague bool          // idleSince is only the latest that it may be
}

// New returns an unused model.
func New(k limitertest.Kind, l limitertest.Limits) *Model { return &Model{Kind: k, Limits: l} }

func (m *Model) timed() bool { return m.step() > 0 }

func (m *Model) step() time.Duration { return m.Limits.Step(m.Kind) }

func (m *Model) manual() bool { return m.Limits.Manual }

// Line returns the last grid line reached, and the time between two lines.
func (m *Model) Line() (line, step time.Duration) { return m.line, m.step() }

// Queued returns how many requests wait.
func (m *Model) Queued() int { return len(m.queue) }

func (m *Model) used() (sum int) {
	for _, s := range m.spent {
		sum += s.n
	}
	return sum
}

// available returns the free permits. It is negative if a limit was lowered below what is used.
func (m *Model) available() int { return m.Limits.Permits - m.used() }

// Advance moves the clock on, grid line by grid line.
func (m *Model) Advance(now time.Duration) {
	m.advanced = now
	for m.timed() && !m.Limits.Manual && !m.closed && m.line+m.step() <= now {
		m.now = m.line + m.step()
		m.passLine(m.now)
		if m.Fault != ServesLateOnce || !m.Late || m.line+m.step() > now {
			m.serve()
		}
		if m.Fault == OneLineOnly && len(m.queue) == 0 {
			m.line += (now - m.line) / m.step() * m.step()
		}
		if m.Fault == Drift && len(m.queue) == 0 {
			m.line = now
		}
	}
	m.now = now
}

// Replenish is TryReplenish.
func (m *Model) Replenish() bool {
	if !m.Limits.Manual || m.closed {
		return m.Limits.Manual
	}
	for m.line+m.step() <= m.now {
		m.passLine(m.line + m.step())
		if m.Fault == ServeEachLine {
			m.serve()
		}
	}
	m.serve()
	return true
}

// passLine lets the permits come back that the grid line brings.
func (m *Model) passLine(line time.Duration) {
	used := m.used()
	m.line = line
	m.lines++
	switch m.Kind {
	case limitertest.FixedWindow:
		m.spent = nil
	case limitertest.SlidingWindow:
		m.spent = slices.DeleteFunc(m.spent, func(s spent) bool { return s.from <= line-m.Limits.Period })
	case limitertest.TokenBucket:
		if used == 0 && m.Fault == SavesUp {
			m.spent = append(m.spent, spent{line, -m.Limits.TokensPerPeriod})
			return
		}
		m.giveBack(m.Limits.TokensPerPeriod)
	}
	m.noteIdle(used, line)
}

// giveBack lets n permits come back, the oldest first.
func (m *Model) giveBack(n int) {
	for n > 0 && len(m.spent) > 0 {
		k := min(n, m.spent[0].n)
		m.spent[0].n -= k
		n -= k
		if m.spent[0].n <= 0 {
			m.spent = m.spent[1:]
		}
	}
}

// noteIdle notes since when no permit is used. before is how many were before the change.
func (m *Model) noteIdle(before int, at time.Duration) {
	if before != 0 && m.used() == 0 {
		m.idleSince, m.idleVague = at, false
		if m.Fault == IdleSinceLook {
			m.idleSince = m.advanced
		}
	}
}

// canTake reports whether a newcomer is granted n permits now.
func (m *Model) canTake(n int) bool {
	free := m.available()
	if m.Fault == OverGrant && m.Limits.Permits > 1 {
		free++
	}
	if n == 0 && m.Fault == ZeroBlocked {
		return free >= 1 && len(m.queue) == 0
	}
	if n == 0 {
		return free >= 1
	}
	if len(m.queue) > 0 && m.Limits.Order == limiter.NewestFirst && m.Fault == NoBarging {
		return false
	}
	return free >= n && (len(m.queue) == 0 || m.Limits.Order == limiter.NewestFirst || m.Fault == Barging)
}

func (m *Model) grant(r *Request) {
	r.From = m.line
	if m.Fault == ChargesLate && m.Late && m.timed() {
		r.From += (m.advanced - m.line) / m.step() * m.step()
	}
	if n := r.N; n > 0 || m.Fault == ZeroTakes {
		m.spent = append(m.spent, spent{r.From, max(n, 1)})
	}
	if m.Fault == IdleTouched {
		m.idleSince = m.now
	}
	m.successes++
	at := m.now
	if m.Late {
		at = m.advanced
	}
	r.settle(Answer{Outcome: Granted, At: at})
}

func (m *Model) reject(r *Request, reason string) {
	m.failures++
	r.settle(Answer{Outcome: Rejected, Reason: reason, At: m.now})
}

// refused answers what is asked outside of the range, or too late.
func (m *Model) refused(r *Request) bool {
	switch {
	case r.N < 0 || r.N > m.Limits.Permits && m.Fault != RangeRejected:
		r.settle(Answer{Outcome: OutOfRange, At: m.now})
	case m.closed && m.Fault != OpenAfterClose:
		r.settle(Answer{Outcome: Closed, At: m.now})
	default:
		return false
	}
	return true
}

// Try is TryAcquire, the context aside.
func (m *Model) Try(n int) *Request {
	r := &Request{N: n}
	switch {
	case m.refused(r):
	case m.canTake(n):
		m.grant(r)
	default:
		m.reject(r, "")
		m.setRetryAfter(r)
	}
	return r
}

// Peek is Peek, the context aside.
func (m *Model) Peek(n int) *Request {
	r := &Request{N: n}
	switch m.Fault {
	case PeekTakes:
		return m.Try(n)
	case PeekCounts:
		m.failures++
	case PeekTouches:
		m.idleSince = m.now
	}
	switch {
	case m.refused(r):
	case m.canTake(n) || m.Fault == PeekIgnoresQueue && m.available() >= r.cost():
		r.settle(Answer{Outcome: Granted, At: m.now})
	default:
		r.settle(Answer{Outcome: Rejected, At: m.now})
		m.setRetryAfter(r)
	}
	return r
}

// Acquire is Acquire, the context aside. The answer may come later.
func (m *Model) Acquire(n int) *Request {
	r := &Request{N: n, done: make(chan struct{})}
	if m.refused(r) {
		return r
	}
	if m.canTake(n) {
		m.grant(r)
		return r
	}
	fits := func() bool { return m.queueCost()+m.costOf(r) <= m.Limits.QueueLimit }
	if !fits() && (m.Limits.Order == limiter.OldestFirst || m.costOf(r) > m.Limits.QueueLimit) {
		reason := limiter.ReasonQueueLimit
		if m.Limits.QueueLimit == 0 {
			reason = limiter.ReasonNoPermit
		}
		m.reject(r, reason)
		m.setRetryAfter(r)
		return r
	}
	var pushedOut []*Request
	for !fits() {
		oldest := 0
		if m.Fault == PushesOutNewest {
			oldest = len(m.queue) - 1
		}
		pushedOut = append(pushedOut, m.queue[oldest])
		m.queue = slices.Delete(m.queue, oldest, oldest+1)
	}
	m.queue = append(m.queue, r)
	for _, p := range pushedOut {
		m.failures++
		p.Answer = Answer{Outcome: Rejected, Reason: limiter.ReasonQueueLimit, At: m.now}
		m.setRetryAfter(p)
		p.settle(p.Answer)
	}
	return r
}

func (m *Model) costOf(r *Request) int {
	switch m.Fault {
	case CountsWaiters:
		return 1
	case ZeroWaitsFree:
		return r.N
	}
	return r.cost()
}

func (m *Model) queueCost() (sum int) {
	for _, r := range m.queue {
		sum += m.costOf(r)
	}
	return sum
}
