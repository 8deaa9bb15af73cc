package naive

import (
	"slices"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
)

// serve grants what can be granted: every request for 0 once a permit is free, then the queue, head first.
func (m *Model) serve() {
	for {
		if m.available() >= 1 {
			m.serveZeros()
		}
		head := m.head()
		if head < 0 || m.queue[head].N > m.available() {
			return
		}
		r := m.queue[head]
		m.queue = slices.Delete(m.queue, head, head+1)
		m.grant(r)
	}
}

func (m *Model) serveZeros() {
	for i := 0; i < len(m.queue); {
		if r := m.queue[i]; r.N == 0 {
			m.queue = slices.Delete(m.queue, i, i+1)
			m.grant(r)
			continue
		}
		i++
	}
}

// head returns the index of the request that is served next, or -1.
func (m *Model) head() int {
	head := -1
	newest := m.Limits.Order == limiter.NewestFirst
	if m.Fault == WrongOrder {
		newest = !newest
	}
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
	if m.Fault != KeepsRoom {
		m.queue = slices.Delete(m.queue, i, i+1)
	}
	if m.Fault == LosesPermits {
		m.spent = append(m.spent, spent{m.line, r.N})
	}
	if m.Fault == CountsCancelled {
		m.failures++
	}
	r.settle(Answer{Outcome: Cancelled, At: m.now})
	if m.Fault == KeepsRoom {
		m.queue[i] = &Request{N: r.N} // a ghost
	} else if m.Fault != StuckAfterCancel {
		m.serve()
	}
}

// Release gives back what a lease of a concurrency limiter held.
func (m *Model) Release(n int) {
	if m.Kind != limitertest.Concurrency || m.closed && m.Fault != ReleasesAfterClose || n == 0 {
		return
	}
	used := m.used()
	m.giveBack(n)
	m.noteIdle(used, m.now)
	m.serve()
}

// Refund undoes a grant.
func (m *Model) Refund(r *Request) {
	if m.closed || m.Fault == NoRefund {
		return
	}
	used := m.used()
	m.successes--
	n := r.N
	for i := 0; i < len(m.spent) && n > 0; i++ {
		if m.Kind == limitertest.TokenBucket || m.spent[i].from == r.From || m.Fault == RefundsTooLate {
			k := min(n, m.spent[i].n)
			m.spent[i].n -= k
			n -= k
		}
	}
	m.spent = slices.DeleteFunc(m.spent, func(s spent) bool { return s.n == 0 })
	m.noteIdle(used, m.now)
	m.serve()
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
	old, step, used := m.Limits, m.step(), m.used()
	m.Limits = to
	if m.timed() && (to.Period != old.Period || to.Step(m.Kind) != step) {
		m.newGrid(step, used)
	}
	switch m.Fault {
	case FreshBurst:
		m.spent = nil
	case ClampsUse:
		m.giveBack(m.used() - m.Limits.Permits)
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

// newGrid begins the new grid at the last line of the old one. If the next line of the new grid has passed already, it
// counts as reached now, once.
func (m *Model) newGrid(oldStep time.Duration, used int) {
	if used == 0 {
		m.idleVague = true
	}
	oldLine, anchor := m.line, m.line
	late := m.line+m.step() <= m.now
	if late {
		anchor = m.now
	}
	if m.Kind == limitertest.SlidingWindow {
		m.moveSegments(oldStep, oldLine, anchor)
	}
	if late {
		m.passLine(anchor)
	} else {
		m.line = anchor
	}
	m.noteIdle(used, m.now)
}

// moveSegments moves the permits of each old segment to a new one: of the new segments that overlap it, the last.
func (m *Model) moveSegments(oldStep, oldLine, anchor time.Duration) {
	for i, s := range m.spent {
		last := s.from + oldStep - 1
		if s.from == oldLine {
			last = m.now - 1
			if anchor == oldLine {
				last = anchor
			}
		}
		from := anchor
		for last < from && from > anchor-m.Limits.Period { // older ones come back
			from -= m.step()
		}
		m.spent[i].from = from
	}
	m.spent = slices.DeleteFunc(m.spent, func(s spent) bool { return s.from <= anchor-m.Limits.Period })
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
	if m.used() != 0 {
		return 0, 0, false
	}
	most = m.now - m.idleSince
	if m.idleVague {
		return 0, most, true
	}
	return most, most, true
}
