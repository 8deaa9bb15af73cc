package weirredis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A plan is what all decisions by one definition have in common. It is not changed.
type plan struct {
	schedule       rate.Schedule // of a calendar, that of one window
	stored         string        // the schedule as it is in stored states
	places         *limiterPlaces
	limits         string // ARGV[1] of the script requests
	takeOne        any    // ARGV[1] of the script take for one permit, a string
	take, requests script
	line           int64 // of a calendar: the window
	refillsOnce    bool  // all permits come back on one line, so blocks need no floor
}

// maxPlans bounds how many plans are kept, also of definitions that are not used any more.
const maxPlans = 4096

func (b *Backend) plan(batch *backend.Batch) (*plan, error) {
	d := batch.Definition
	if p, ok := b.plans.load(d); ok && (d.Every == 0 || p.schedule.LineAt(batch.At) == p.line) {
		return p, nil
	}
	if err := checkDefinition(d); err != nil {
		return nil, err
	}
	p := b.newPlan(batch)
	b.plans.store(d, p, maxPlans)
	return p, nil
}

func (b *Backend) newPlan(batch *backend.Batch) *plan {
	d := batch.Definition
	p := &plan{places: b.places(d.Name), refillsOnce: d.Refill == 0}
	p.schedule, p.line = batch.Lines()
	p.stored = scheduleBytes(&p.schedule, d.Version)
	refillOrSegments := float64(d.Refill)
	p.take, p.requests = b.scripts.take, b.scripts.requests
	switch {
	case d.Every != 0:
		refillOrSegments = float64(p.line) // there is one segment
		p.take, p.requests = b.scripts.takeCalendar, b.scripts.requestsCalendar
	case d.Segments > 0:
		refillOrSegments = float64(d.Segments)
		p.take, p.requests = b.scripts.takeSliding, b.scripts.requestsSliding
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

// errDefinition means that nothing can be decided by a definition.
var errDefinition = errors.New("the definition cannot be used")

func checkDefinition(d *backend.Definition) error {
	if d == nil {
		return fmt.Errorf("%w: there is none", errDefinition)
	}
	if !d.Usable() || d.Permits <= 0 {
		return fmt.Errorf("%w: limiter %q: it must be a bucket or window whose numbers are above 0, in a time zone that this machine knows: %+v", errDefinition, d.Name, d.Schedule)
	}
	for _, n := range []int64{d.Version, d.Anchor, d.Period, d.Permits, d.Refill, d.Segments} {
		if n > maxExact || n < -maxExact {
			return fmt.Errorf("%w: limiter %q: the number %d is too large", errDefinition, d.Name, n)
		}
	}
	return nil
}

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
