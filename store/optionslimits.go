package store

import (
	"math"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// queueing is the part of a limiter's options that applies to this instance only, except in an override.
type queueing struct {
	limit int
	order limiter.QueueOrder
}

// split returns the part of the limits that is kept in the store, and the rest, which is not. It adds to p what is wrong with
// them, also what is wrong with them in a process: a file has all problems at once.
func split(p *validate.Problems, o limiter.Options) (kept rate.Schedule, q queueing) {
	l := rate.Of(o)
	p.Include("", l.Validate())
	if l.Manual {
		p.Add("ManualReplenishment", true, "must be false in a store, whose clock decides when permits come back")
	}
	f := l.Fields()
	return rate.Schedule{
		Kind: l.Kind, Permits: storedPermits(p, f.Permits, l.Permits), Refill: storedPermits(p, f.Refill, l.Refill),
		Period:   storedPeriod(p, f.Period, l.Period, l.Period/time.Duration(max(l.Segments, 1))),
		Segments: int64(l.Segments),
	}, queueing{l.QueueLimit, l.QueueOrder}
}

// storedPermits converts the number in a field and refuses one that a store cannot compute with.
func storedPermits(p *validate.Problems, field string, n int) int64 {
	if int64(n) > backend.MaxPermits {
		p.Add(field, n, "must be at most %d in a store", int64(backend.MaxPermits))
	}
	return int64(n)
}

// storedPeriod returns the period in µs and refuses one that is not whole or too long. value is the value of the field
// from which the period was computed.
func storedPeriod(p *validate.Problems, field string, value, period time.Duration) int64 {
	us := period.Microseconds()
	switch {
	case period%time.Microsecond != 0 && period == value:
		p.Add(field, value, "must be whole microseconds in a store")
	case period%time.Microsecond != 0:
		p.Add(field, value, "must be a whole number of microseconds for each of {SegmentsPerWindow} in a store")
	case us > backend.MaxPeriod:
		p.Add(field, value, "must be at most 100 years in a store")
	}
	return us
}

// limitsFrom is the inverse of split.
func limitsFrom(l rate.Schedule, q queueing) rate.Limits {
	return rate.Limits{
		Kind: l.Kind, Permits: toInt(l.Permits), Refill: toInt(l.Refill), Segments: toInt(l.Segments),
		Period:     time.Duration(l.Period) * time.Microsecond * time.Duration(max(l.Segments, 1)),
		QueueLimit: q.limit, QueueOrder: q.order,
	}
}

// limitsInForce returns the limits in force, as far as this instance knows.
func (c *core) limitsInForce() rate.Limits { return limitsFrom(c.limits(), *c.queueingInForce()) }

// toInt converts n, which another program may have set on a machine with larger ints.
func toInt(n int64) int { return int(min(n, math.MaxInt)) }
