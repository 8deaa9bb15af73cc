// Package model is what the limiters are tested against: a [rate.State] and a list of the callers that wait, from
// docs/semantics.md alone. It has no clock, the caller gives it the time, and it goes from grid line to grid line. Tests
// compare it with the limiters, and give it a [Fault] to check that they would notice.
package model

import (
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/rate"
)

// An Outcome is the result of a request.
type Outcome uint8

// The outcomes.
const (
	Waiting Outcome = iota
	Granted
	Rejected
	OutOfRange
	Closed
	Cancelled
)

var outcomeNames = [...]string{"waits", "granted", "rejected", "ErrPermitCount", "ErrClosed", "context error"}

func (o Outcome) String() string { return outcomeNames[o] }

// An Answer is an Outcome with its details.
type Answer struct {
	Outcome Outcome
	Reason  string
	At      time.Duration // when it was given, since construction
	// Rejected: RetryAfter lies between these two; both 0: there is none.
	RetryMin, RetryMax time.Duration
	// RetryOptional: the request could be granted at once, so none is right too.
	RetryOptional bool
}

// A Request is one call of TryAcquire or Acquire.
type Request struct {
	Answer
	N        int
	From     time.Duration // granted: the grid line that the permits are charged to
	receipt  rate.Receipt
	receipts int           // of the model at the grant
	done     chan struct{} // closed when the outcome is no longer Waiting
}

// settle gives the request its answer.
func (r *Request) settle(a Answer) {
	r.Answer = a
	if r.done != nil {
		close(r.done)
	}
}

// A Model is one limiter. It is not safe for concurrent use.
type Model struct {
	Kind   limitertest.Kind
	Limits limitertest.Limits
	Fault  Fault
	Late   bool // answers are given when Advance is called, not on the grid lines that it goes through

	schedule  rate.Schedule // of a concurrency limiter: a window that never ends
	state     rate.State
	receipts  int           // how often earlier receipts became invalid
	now       time.Duration // the real clock, since construction
	advanced  time.Duration // when Advance was last called
	queue     []*Request    // in order of arrival
	closed    bool
	successes int64
	failures  int64
	idleSince time.Duration // while nothing is missing
	idleVague bool          // idleSince is only the latest that it may be
}

// New returns an unused model.
func New(k limitertest.Kind, l limitertest.Limits) *Model {
	return &Model{Kind: k, Limits: l, schedule: scheduleOf(k, l)}
}

func scheduleOf(k limitertest.Kind, l limitertest.Limits) rate.Schedule {
	s := rate.Schedule{Kind: rate.FixedWindow, Permits: int64(l.Permits), Period: int64(l.Step(k))}
	switch k {
	case limitertest.Concurrency, limitertest.Unlimited:
		s.Period = math.MaxInt64
	case limitertest.SlidingWindow:
		s.Kind, s.Segments = rate.SlidingWindow, int64(l.Segments)
	case limitertest.Calendar: // one window after the other, as rate.Schedule.Window has them
		s.Kind, s.Segments = rate.Calendar, 1
	case limitertest.TokenBucket:
		s.Kind, s.Refill = rate.TokenBucket, int64(l.TokensPerPeriod)
	}
	return s
}

func (m *Model) step() time.Duration { return m.Limits.Step(m.Kind) }

func (m *Model) timed() bool { return m.step() > 0 }

func (m *Model) line() time.Duration { return time.Duration(m.schedule.TimeOf(m.state.Line)) }

// Line returns the last grid line reached, and the time between two lines.
func (m *Model) Line() (line, step time.Duration) { return m.line(), m.step() }

// Queued returns how many requests wait.
func (m *Model) Queued() int { return len(m.queue) }

// available returns the free permits. It is negative if a limit was lowered below what is used.
func (m *Model) available() int { return int(m.schedule.Free(&m.state)) }

// Advance moves the clock on, grid line by grid line.
func (m *Model) Advance(now time.Duration) {
	m.advanced = now
	for m.timed() && !m.closed && m.line()+m.step() <= now {
		m.passLine()
		m.now = m.line()
		if m.Fault != ServesLateOnce || !m.Late || m.line()+m.step() > now {
			m.serve()
		}
		if m.Fault == OneLineOnly && len(m.queue) == 0 {
			m.state.Line = m.schedule.LineAt(int64(now))
		}
		if m.Fault == Drift && len(m.queue) == 0 {
			m.schedule.Anchor += int64(now - m.line())
		}
	}
	m.now = now
}

// passLine goes to the next grid line.
func (m *Model) passLine() {
	missing := m.state.Missing
	m.schedule.AdvanceTo(&m.state, m.state.Line+1)
	if missing <= 0 && m.Fault == SavesUp && m.Kind == limitertest.TokenBucket {
		m.state.Missing = missing - int64(m.Limits.TokensPerPeriod)
	}
	m.noteIdle(missing, m.line())
}

// noteIdle notes since when no permit is missing. before is how many were before the change.
func (m *Model) noteIdle(before int64, at time.Duration) {
	if before != 0 && m.state.Missing == 0 {
		m.idleSince, m.idleVague = at, m.Kind == limitertest.Concurrency
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
	if n == 0 {
		return free >= 1 && (m.Fault != ZeroBlocked || len(m.queue) == 0)
	}
	newest := m.Limits.Order == limiter.NewestFirst && m.Fault != NoBarging
	return free >= n && (len(m.queue) == 0 || newest || m.Fault == Barging)
}

func (m *Model) grant(r *Request) {
	ahead := int64(0)
	if m.Fault == ChargesLate && m.Late && m.timed() {
		ahead = m.schedule.LineAt(int64(m.advanced)) - m.state.Line
	}
	n := r.N
	if m.Fault == ZeroTakes {
		n = max(n, 1)
	}
	m.state.Line += ahead
	m.schedule.Charge(&m.state, int64(n))
	r.From, r.receipt, r.receipts = m.line(), m.schedule.Receipt(&m.state), m.receipts
	m.state.Line -= ahead
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
	case m.canTake(n) || m.Fault == PeekIgnoresQueue && m.available() >= max(n, 1):
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

// costOf returns how much of the queue limit a request takes.
func (m *Model) costOf(r *Request) int {
	switch m.Fault {
	case CountsWaiters:
		return 1
	case ZeroWaitsFree:
		return r.N
	}
	return max(r.N, 1)
}

func (m *Model) queueCost() (sum int) {
	for _, r := range m.queue {
		sum += m.costOf(r)
	}
	return sum
}

// serve grants what can be granted: every request for 0 once a permit is free, then the queue, head first.
func (m *Model) serve() {
	for {
		next := slices.IndexFunc(m.queue, func(r *Request) bool { return r.N == 0 })
		if next < 0 || m.available() < 1 {
			next = m.head()
		}
		if next < 0 || max(m.queue[next].N, 1) > m.available() {
			return
		}
		r := m.queue[next]
		m.queue = slices.Delete(m.queue, next, next+1)
		m.grant(r)
	}
}

// head returns the index of the next request that takes permits, or -1.
func (m *Model) head() int {
	head := -1
	newest := (m.Limits.Order == limiter.NewestFirst) != (m.Fault == WrongOrder)
	for i, r := range m.queue {
		if m.Fault == SkipsHead && r.N > m.available() {
			continue
		}
		if r.N > 0 && (head < 0 || newest) {
			head = i
		}
	}
	return head
}

// Cancel ends the context of a request.
func (m *Model) Cancel(r *Request) {
	i := slices.Index(m.queue, r)
	if i < 0 || m.Fault == DeafToContext {
		return
	}
	if m.Fault == LosesPermits {
		m.schedule.Charge(&m.state, int64(r.N))
	}
	if m.Fault == CountsCancelled {
		m.failures++
	}
	r.settle(Answer{Outcome: Cancelled, At: m.now})
	if m.Fault == KeepsRoom {
		m.queue[i] = &Request{N: r.N} // a ghost
		return
	}
	m.queue = slices.Delete(m.queue, i, i+1)
	if m.Fault != StuckAfterCancel {
		m.serve()
	}
}

// Release gives back what a lease of a concurrency limiter held.
func (m *Model) Release(n int) {
	if m.Kind != limitertest.Concurrency || m.closed && m.Fault != ReleasesAfterClose || n == 0 {
		return
	}
	missing := m.state.Missing
	m.schedule.GiveBack(&m.state, int64(n))
	m.noteIdle(missing, m.now)
	m.serve()
}

// Refund undoes a grant. It returns how many permits it gives back.
func (m *Model) Refund(r *Request) (back int64) {
	if m.closed || m.Fault == NoRefund {
		return 0
	}
	missing := m.state.Missing
	m.successes--
	switch {
	case m.Fault == RefundsTooLate:
		m.schedule.GiveBack(&m.state, int64(r.N))
	case r.receipts == m.receipts:
		m.schedule.Refund(&m.state, r.receipt, int64(r.N))
	}
	m.noteIdle(missing, m.line())
	back = missing - m.state.Missing
	m.serve()
	return back
}

// RefundMore is Refund for a limiter that knows more than a state: it gives back n permits more than Refund did.
func (m *Model) RefundMore(n int64) {
	missing := m.state.Missing
	m.schedule.Refund(&m.state, rate.Receipt{Line: math.MaxInt64 / 2, Taken: math.MaxInt64 / 2}, n) // of any grant
	m.noteIdle(missing, m.line())
	m.serve()
}

// Charge is Charge, the context and the closed limiter aside. It returns how many permits it gave back.
func (m *Model) Charge(n int) (level limiter.Level, back int) {
	missing := m.state.Missing
	switch {
	case n > 0 && m.Fault == ChargeQueues && len(m.queue) > 0:
	case n > 0 && m.Fault == ChargeClamps:
		m.schedule.Charge(&m.state, int64(min(n, max(m.available(), 0))))
	case n > 0:
		m.schedule.Charge(&m.state, int64(n))
	case n < 0:
		m.giveBackUnleased(-max(int64(n), -1000)) // fewer than 1000 are ever missing
		m.noteIdle(missing, m.line())
		back = int(missing - m.state.Missing)
		if m.Fault != ChargeUnserved {
			m.serve()
		}
	case m.Fault == ChargeTouches:
		m.idleSince = m.now
	}
	if m.Fault == ChargeCounts {
		m.successes++
	}
	level.Remaining = int64(m.available())
	if m.state.Missing > 0 {
		full := m.schedule.LineOf(&m.state, m.state.Missing)
		if m.Fault == LevelEarly && m.Kind == limitertest.SlidingWindow {
			full = m.state.Line + 1
		}
		level.Full = max(time.Duration(m.schedule.TimeOf(full))-m.now, 1)
	}
	return level, back
}

func (m *Model) giveBackUnleased(n int64) {
	g := m.schedule
	switch {
	case m.Fault == ChargeOverfills && m.state.Missing > 0:
		m.state.Missing -= n
		return
	case m.Fault == ChargeNewest:
		g.Permits = math.MinInt64 / 2 // everything is owed
	case m.Fault == ChargeOldest:
		g.Permits = math.MaxInt64
	}
	g.GiveBack(&m.state, n)
}

// Close rejects all waiters. It returns nil.
func (m *Model) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	for _, r := range m.queue {
		if m.Fault == CountsClosed {
			m.failures++
		}
		r.settle(Answer{Outcome: Rejected, Reason: limiter.ReasonClosed, At: m.now})
	}
	m.queue = nil
	return nil
}

// Reconfigure puts new limits in force; they must be valid.
func (m *Model) Reconfigure(to limitertest.Limits) {
	from, missing := m.schedule, m.state.Missing
	m.Limits, m.schedule = to, scheduleOf(m.Kind, to)
	m.schedule.Anchor = from.Anchor
	if m.schedule.Refill != from.Refill {
		m.receipts++
	}
	if m.schedule.Period != from.Period || m.schedule.Segments != from.Segments {
		line := from.TimeOf(m.state.Line)
		reached := line+m.schedule.Period <= int64(m.now)
		if m.schedule.Anchor = line; reached { // the next line of the new grid counts as reached now, once
			m.schedule.Anchor = int64(m.now)
		}
		m.state = m.schedule.Convert(&from, m.state, int64(m.now), reached)
		m.receipts++
		m.idleVague = m.idleVague || missing == 0
		m.noteIdle(missing, m.now)
	}
	switch m.Fault {
	case FreshBurst:
		m.state = m.schedule.Full(int64(m.line()))
	case ClampsUse:
		m.schedule.GiveBack(&m.state, -m.schedule.Free(&m.state))
	}
	m.queue = slices.DeleteFunc(m.queue, func(r *Request) bool {
		lowered := r.N > to.Permits && m.Fault != KeepsTooLarge
		if lowered {
			m.reject(r, limiter.ReasonLimitLowered)
		}
		return lowered
	})
	if m.Fault != NoServeOnRaise {
		m.serve()
	}
}

// Statistics returns the figures.
func (m *Model) Statistics() limiter.Statistics {
	s := limiter.Statistics{
		AvailablePermits: max(0, int64(m.available())),
		SuccessfulLeases: m.successes,
		FailedLeases:     m.failures,
	}
	for _, r := range m.queue {
		s.QueuedPermits += int64(r.N)
		if m.Fault == CountsWaiters {
			s.QueuedPermits += int64(1 - r.N)
		}
	}
	return s
}

// Idle is IdleDuration; the true one lies between the two durations.
func (m *Model) Idle() (least, most time.Duration, ok bool) {
	if m.state.Missing != 0 {
		return 0, 0, false
	}
	most = m.now - m.idleSince
	if m.idleVague {
		return 0, most, true
	}
	return most, most, true
}

// manyWaiters is how many waiters there can be before RetryAfter need not be exact.
const manyWaiters = 64

// setRetryAfter says in r when it could be granted if there were no other callers.
func (m *Model) setRetryAfter(r *Request) {
	if m.Kind == limitertest.Concurrency || r.N > m.Limits.Permits || m.Fault == NoRetryAfter {
		return
	}
	r.RetryOptional = m.canTake(r.N)
	r.RetryMin = m.firstLineFor(r.N) - m.now
	r.RetryMax = r.RetryMin
	switch {
	case m.Fault == EarlyRetry && r.RetryMin > 1:
		r.RetryMin--
		r.RetryMax--
	case m.Fault == LateRetry:
		r.RetryMin++
		r.RetryMax++
	case m.Fault == WholePeriods:
		r.RetryMin, r.RetryMax = m.step(), m.step()
	}
	if r.RetryOptional {
		r.RetryMin = 1
	}
	if m.Fault != IgnoresQueue && len(m.queue) > manyWaiters {
		r.RetryMax = 1<<63 - 1
	}
}

// firstLineFor passes one grid line after the other in a copy of m, and returns the first on which n permits can be taken.
func (m *Model) firstLineFor(n int) time.Duration {
	c := *m
	c.state.Segments = slices.Clone(m.state.Segments)
	c.queue = nil
	for _, r := range m.queue {
		if m.Fault != IgnoresQueue {
			c.queue = append(c.queue, &Request{N: r.N})
		}
	}
	for {
		c.passLine()
		c.serve()
		if c.canTake(n) {
			return c.line()
		}
	}
}
