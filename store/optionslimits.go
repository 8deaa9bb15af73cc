package store

import (
	"math"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// options are the options types of package limiter that the constructors of a Store take.
type options interface {
	limiter.TokenBucketOptions | limiter.FixedWindowOptions | limiter.SlidingWindowOptions | limiter.ConcurrencyOptions
}

// queueing is the part of a limiter's options that applies to this instance only, except in an override.
type queueing struct {
	limit int
	order limiter.QueueOrder
}

// splitOptions converts options of package limiter to the limits, which are kept in the store, and to the rest, which is
// not. It adds to p what is wrong with them. If package limiter refuses the options, both results are zero.
func splitOptions(p *validate.Problems, o any) (rate.Schedule, queueing) {
	if v, ok := o.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			p.Include("", err)
			return rate.Schedule{}, queueing{}
		}
	}
	switch o := o.(type) {
	case limiter.TokenBucketOptions:
		checkAutomatic(p, o.ManualReplenishment)
		return rate.Schedule{
			Kind: rate.TokenBucket, Permits: storedPermits(p, "TokenLimit", o.TokenLimit), Refill: storedPermits(p, "TokensPerPeriod", o.TokensPerPeriod),
			Period: storedPeriod(p, "ReplenishmentPeriod", o.ReplenishmentPeriod, o.ReplenishmentPeriod),
		}, queueing{o.QueueLimit, o.QueueOrder}
	case limiter.FixedWindowOptions:
		checkAutomatic(p, o.ManualReplenishment)
		return rate.Schedule{
			Kind: rate.FixedWindow, Permits: storedPermits(p, "PermitLimit", o.PermitLimit), Period: storedPeriod(p, "Window", o.Window, o.Window),
		}, queueing{o.QueueLimit, o.QueueOrder}
	case limiter.SlidingWindowOptions:
		checkAutomatic(p, o.ManualReplenishment)
		if o.SegmentsPerWindow > rate.MaxSegments {
			p.Add("SegmentsPerWindow", o.SegmentsPerWindow, "must be at most %d in a store", rate.MaxSegments)
		}
		return rate.Schedule{
			Kind: rate.SlidingWindow, Permits: storedPermits(p, "PermitLimit", o.PermitLimit), Segments: int64(o.SegmentsPerWindow),
			Period: storedPeriod(p, "Window", o.Window, o.Window/time.Duration(o.SegmentsPerWindow)),
		}, queueing{o.QueueLimit, o.QueueOrder}
	case limiter.ConcurrencyOptions:
		return rate.Schedule{Kind: rate.Concurrency, Permits: storedPermits(p, "PermitLimit", o.PermitLimit)}, queueing{o.QueueLimit, o.QueueOrder}
	}
	p.Add("", nil, "options of type %T have no shared limiter", o)
	return rate.Schedule{}, queueing{}
}

// checkAutomatic refuses ManualReplenishment.
func checkAutomatic(p *validate.Problems, manual bool) {
	if manual {
		p.Add("ManualReplenishment", true, "must be false in a store, whose clock decides when permits come back")
	}
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

// optionsFrom is the inverse of splitOptions.
func optionsFrom(l rate.Schedule, q queueing) any {
	period := time.Duration(l.Period) * time.Microsecond
	switch l.Kind {
	case rate.TokenBucket:
		return limiter.TokenBucketOptions{
			TokenLimit: toInt(l.Permits), TokensPerPeriod: toInt(l.Refill), ReplenishmentPeriod: period, QueueLimit: q.limit, QueueOrder: q.order,
		}
	case rate.FixedWindow:
		return limiter.FixedWindowOptions{PermitLimit: toInt(l.Permits), Window: period, QueueLimit: q.limit, QueueOrder: q.order}
	case rate.SlidingWindow:
		return limiter.SlidingWindowOptions{
			PermitLimit: toInt(l.Permits), Window: period * time.Duration(l.Segments), SegmentsPerWindow: toInt(l.Segments),
			QueueLimit: q.limit, QueueOrder: q.order,
		}
	default:
		return limiter.ConcurrencyOptions{PermitLimit: toInt(l.Permits), QueueLimit: q.limit, QueueOrder: q.order}
	}
}

// optionsOf returns the options in force. If another instance has given the limiter another kind, it returns the
// options that were set here.
func optionsOf[O options](c *core) O {
	q := *c.queueingInForce()
	if o, ok := optionsFrom(c.limits(), q).(O); ok {
		return o
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return optionsFrom(c.wantedLimits, q).(O)
}

// toInt converts n, which another program may have set on a machine with larger ints.
func toInt(n int64) int { return int(min(n, math.MaxInt)) }
