package naive

import (
	"slices"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
)

// manyWaiters is how many waiters there can be before RetryAfter need not be exact.
const manyWaiters = 64

// clone returns a copy of m whose requests are not those of m.
func (m *Model) clone() *Model {
	c := *m
	c.spent = slices.Clone(m.spent)
	c.queue = nil
	for _, r := range m.queue {
		c.queue = append(c.queue, &Request{N: r.N})
	}
	return &c
}

// setRetryAfter says in r when it could be granted if there were no other callers.
func (m *Model) setRetryAfter(r *Request) {
	if m.Kind == limitertest.Concurrency || r.N > m.Limits.Permits || m.Fault == NoRetryAfter {
		return
	}
	r.RetryOptional = m.canTake(r.N)
	c := m.clone()
	c.Limits.Manual = false
	// A manual limiter that is asked late passes all lines that are due before it serves the queue, which can make a
	// difference.
	a := c.firstLineFor(r.N, false) - m.now
	b := a
	if m.Limits.Manual {
		b = m.clone().firstLineFor(r.N, true) - m.now
	}
	r.RetryMin, r.RetryMax = max(1, min(a, b)), max(1, a, b)
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

// firstLineFor passes one grid line after the other, and returns the first on which n permits can be taken. If together is
// true, the lines that have passed come all at once.
func (m *Model) firstLineFor(n int, together bool) time.Duration {
	if m.Fault == IgnoresQueue {
		m.queue = nil
	}
	for {
		line := m.line + m.step()
		m.passLine(line)
		if together && m.line+m.step() <= m.now {
			continue
		}
		m.serve()
		if m.canTake(n) {
			return line
		}
	}
}
