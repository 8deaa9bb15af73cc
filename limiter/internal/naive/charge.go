package naive

import (
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/limitertest"
)

// Charge is Charge, the context and the closed limiter aside. It returns how many permits it gave back.
func (m *Model) Charge(n int) (level limiter.Level, back int) {
	switch {
	case n > 0:
		m.take(n)
	case n < 0: // fewer than 1000 are ever missing
		used := m.used()
		back = m.giveBackUnleased(-max(n, -1000))
		m.noteIdle(used, m.line)
		if m.Fault != ChargeUnserved {
			m.serve()
		}
	case m.Fault == ChargeTouches:
		m.idleSince = m.now
	}
	if m.Fault == ChargeCounts {
		m.successes++
	}
	return m.level(), back
}

// take takes n permits, even if fewer are free.
func (m *Model) take(n int) {
	if m.Fault == ChargeQueues && len(m.queue) > 0 {
		return
	}
	if m.Fault == ChargeClamps {
		n = max(min(n, m.available()), 0)
	}
	if n > 0 {
		m.spent = append(m.spent, spent{m.line, n})
	}
}

// giveBackUnleased lets up to n permits come back, and returns how many did: what is above the limit from the newest, and
// then the oldest.
func (m *Model) giveBackUnleased(n int) (back int) {
	if m.Fault == ChargeOverfills && m.used() > 0 {
		m.spent = append(m.spent, spent{m.line, -n})
		return n
	}
	back = min(n, m.used())
	owed := max(min(back, m.used()-m.Limits.Permits), 0)
	switch m.Fault {
	case ChargeNewest:
		owed = back
	case ChargeOldest:
		owed = 0
	}
	slices.Reverse(m.spent)
	m.giveBack(owed)
	slices.Reverse(m.spent)
	m.giveBack(back - owed)
	return back
}

// level returns the level: it passes one grid line after the other until no permit is used.
func (m *Model) level() limiter.Level {
	level := limiter.Level{Remaining: int64(m.available())}
	c := m.clone()
	c.queue, c.Limits.Manual = nil, false
	for c.used() > 0 {
		c.passLine(c.line + c.step())
		level.Full = max(c.line-m.now, 1)
	}
	if m.Fault == LevelEarly && m.Kind == limitertest.SlidingWindow {
		level.Full = min(level.Full, m.step())
	}
	return level
}
