package weirredis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weir-go/weir/store/backend"
)

// A plan is what of a definition is the same for all decisions. It is not changed once it is made.
type plan struct {
	def         *backend.Definition
	grid        backend.Schedule
	stored      string // the grid as it is in stored states
	places      *limiterPlaces
	limits      string // what is handed to scripts for any asks: numbers, then stored
	one         any    // what is handed to scripts for one permit: numbers, then stored
	take, asks  script
	slides      bool
	refillsOnce bool // nothing can be lent and counted line by line: all comes back at once
}

// mostPlans bounds what is kept of definitions that are not in use any more.
const mostPlans = 4096

func (b *Backend) plan(d *backend.Definition) (*plan, error) {
	if p, ok := b.plans.load(d); ok {
		return p, nil
	}
	if err := checkTimed(d); err != nil {
		return nil, err
	}
	p := b.newPlan(d)
	b.plans.store(d, p, mostPlans)
	return p, nil
}

func (b *Backend) newPlan(d *backend.Definition) *plan {
	p := &plan{def: d, grid: d.Schedule(), places: b.places(d.Name)}
	p.stored = gridBytes(p.grid)
	p.slides, p.refillsOnce = d.Kind == backend.KindSlidingWindow, d.Refill == 0
	last := float64(d.Refill)
	p.take, p.asks = b.scripts.take, b.scripts.asks
	switch {
	case p.slides:
		last = float64(d.Segments)
		p.take, p.asks = b.scripts.takeSliding, b.scripts.asksSliding
	case d.Refill == 0:
		last = 1e300 // all, however many lines later
	}
	p.limits = doubles(float64(d.Version), float64(d.Anchor), float64(d.Period), float64(d.Permits), last)
	p.one = p.forTake(1)
	p.limits += p.stored
	return p
}

// forTake is what is handed to scripts for a Take of n.
func (p *plan) forTake(n int64) string {
	const numbers = 5 * 8
	return p.limits[:numbers] + doubles(float64(n)) + p.stored
}

// Numbers up to this are exact in a double, which is what scripts reckon with.
const exact = 1 << 53

// errDefinition is the error of a definition that nothing can be decided by.
var errDefinition = errors.New("the definition cannot be used")

func checkTimed(d *backend.Definition) error {
	if d == nil {
		return fmt.Errorf("%w: there is none", errDefinition)
	}
	switch {
	case d.Kind < backend.KindTokenBucket || d.Kind > backend.KindSlidingWindow:
		return fmt.Errorf("%w: limiter %q: a limiter of %v has no state of this kind", errDefinition, d.Name, d.Kind)
	case d.Period <= 0 || d.Permits <= 0 || d.Refill < 0 || d.Kind == backend.KindSlidingWindow && d.Segments <= 0:
		return fmt.Errorf("%w: limiter %q: it has limits that are not positive", errDefinition, d.Name)
	}
	for _, n := range []int64{d.Version, d.Anchor, d.Period, d.Permits, d.Refill, d.Segments} {
		if n > exact || n < -exact {
			return fmt.Errorf("%w: limiter %q: it has a number that is too large: %d", errDefinition, d.Name, n)
		}
	}
	return nil
}

// doubles writes numbers as scripts read them.
func doubles(numbers ...float64) string {
	b := make([]byte, 0, 8*len(numbers))
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
	}
	return string(b)
}

// number reads what doubles has written, at an offset. -1 is in place of what nobody has written.
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
