package weirredis

import (
	"encoding/binary"
	"math"

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

// maxExact is the largest number up to which all whole numbers are exact as doubles. Scripts compute with doubles.
const maxExact = 1 << 53

// doubles returns numbers as scripts read them.
func doubles(numbers ...float64) string {
	b := make([]byte, 0, 8*len(numbers))
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
	}
	return string(b)
}

// number reads a number that doubles has written. It returns -1 if the bytes are no number or one out of range.
func number(s string, at int) int64 {
	var bits uint64
	for i := 7; i >= 0; i-- {
		bits = bits<<8 | uint64(s[at+i])
	}
	n := math.Float64frombits(bits)
	if !(n >= -1<<62 && n <= 1<<62) {
		return -1
	}
	return int64(n)
}
