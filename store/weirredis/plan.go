package weirredis

import (
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A plan is what all decisions by one definition have in common. It is not changed.
type plan struct {
	definition     *backend.Definition
	schedule       rate.Schedule // of a calendar, that of one window
	stored         string        // the schedule as it is in stored states
	places         *limiterPlaces
	limits         string // ARGV[1] of the script requests
	takeOne        any    // ARGV[1] of the script take for one permit, a string
	take, requests script
	line           int64 // of a calendar: the window
	refillsOnce    bool  // all permits come back on one line, so blocks need no floor
}

// planFor returns the plan of a batch. That of the last definition of a limiter is kept.
func (l *limiterPlaces) planFor(batch *backend.Batch, s *scripts) *plan {
	d := batch.Definition
	if p := l.plan.Load(); p != nil && p.definition == d && (d.Every == 0 || p.schedule.LineAt(batch.At) == p.line) {
		return p
	}
	p := newPlan(batch, l, s)
	l.plan.Store(p)
	return p
}

func newPlan(batch *backend.Batch, l *limiterPlaces, s *scripts) *plan {
	d := batch.Definition
	p := &plan{definition: d, places: l, refillsOnce: d.Refill == 0}
	p.schedule, p.line = batch.Lines()
	p.stored = scheduleBytes(&p.schedule, d.Version)
	refillOrSegments := float64(d.Refill)
	p.take, p.requests = s.take, s.requests
	switch {
	case d.Every != 0:
		refillOrSegments = float64(p.line) // there is one segment
		p.take, p.requests = s.takeCalendar, s.requestsCalendar
	case d.Segments > 0:
		refillOrSegments = float64(d.Segments)
		p.take, p.requests = s.takeSliding, s.requestsSliding
	case d.Refill == 0:
		refillOrSegments = 1e300 // everything comes back, however many lines pass
	}
	p.limits = doubles(float64(d.Version), float64(p.schedule.Anchor), float64(p.schedule.Period), float64(d.Permits), refillOrSegments)
	p.takeOne = p.forTake(1)
	p.limits += p.stored
	return p
}

// forTake returns ARGV[1] of the script take for n permits.
func (p *plan) forTake(n int64) string {
	const numbers = 5 * 8
	return p.limits[:numbers] + doubles(float64(n)) + p.stored
}
