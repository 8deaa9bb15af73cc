package backend

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/rate"
)

// A Definition is what all instances agree on for one limiter: its limits, and when the lines of its schedule are by the
// server's clock. A Definition is never changed; a reconfigured limiter has a new one with a larger Version.
type Definition struct {
	Name string `json:"name"`
	// Schedule is in whole microseconds, with which every store can compute exactly. Anchor is a time of the server's clock
	// since 1970.
	rate.Schedule
	// Version is when the definition came into force, in µs of the server's clock since 1970, or the version before
	// plus one if the clock has stepped back.
	Version int64 `json:"version"`
	// AnchorInForce reports whether the definition came into force at Anchor, because the last line of the old schedule was
	// a new period before that or more. Then Convert restores what comes back on one line.
	AnchorInForce bool `json:"anchor_in_force,omitempty"`
	// Terms say since when the limits are in force, which ones they have replaced, and whether they are overridden for a
	// while. It is JSON of at most 16 kB, which package store writes and reads. Backends store it unchanged.
	Terms string `json:"terms,omitempty"`
}

// MaxPermits is the largest number of permits. Scripts of some stores compute with floating-point numbers, which are
// exact up to 2^53. MaxPermits is smaller, because more permits can be charged than the limit allows.
const MaxPermits = rate.MaxDebt / 2

// MaxPeriod is the longest period, 100 years in µs, so that lines can be computed without overflow.
const MaxPeriod = int64(100 * 365 * 24 * time.Hour / time.Microsecond)

// Check returns an error if no store can decide by d: it is nil or not of a bucket or window, it has a number that floating-point
// numbers do not have, or a time zone that this machine does not know.
func (d *Definition) Check() error {
	if d == nil {
		return errors.New("the definition is nil")
	}
	usable := d.Usable() && d.Permits > 0
	for _, n := range [...]int64{d.Version, d.Anchor, d.Period, d.Permits, d.Refill, d.Segments} {
		usable = usable && -maxExact <= n && n <= maxExact
	}
	if !usable {
		return fmt.Errorf("limiter %q: it must be a bucket or window whose numbers are above 0 and not too large, in a time zone that this machine knows: %+v", d.Name, d.Schedule)
	}
	return nil
}

// maxExact is the largest number up to which floating-point numbers have all whole numbers.
const maxExact = 1 << 53

// NewDefinition returns the first definition of a limiter. The Anchor of limits is ignored.
func NewDefinition(name string, limits rate.Schedule, now int64) *Definition {
	if limits.Every == 0 {
		limits.Anchor = now
	}
	return &Definition{Name: name, Schedule: limits, Version: now}
}

// Limits returns the schedule with Anchor 0: two definitions with equal limits differ at most in when their lines are.
func (d *Definition) Limits() rate.Schedule {
	limits := d.Schedule
	limits.Anchor = 0
	return limits
}

// WithLimits returns the definition that follows d when the limits change at the moment now. The Anchor of limits is
// ignored. If the period or the number of segments changes, line 0 of the new schedule is the last line of d. If that line is
// a new period ago or more, line 0 is now instead, and AnchorInForce is set.
func (d *Definition) WithLimits(limits rate.Schedule, now int64) *Definition {
	next := NewDefinition(d.Name, limits, now)
	next.Version, next.Terms = max(now, d.Version+1), d.Terms
	switch {
	case limits.Kind == rate.Concurrency || d.Kind == rate.Concurrency:
	case limits.Period == d.Period && limits.Segments == d.Segments && limits.Every == d.Every && limits.Zone == d.Zone:
		next.Anchor = d.Anchor
	default:
		next.AnchorInForce = next.Follow(&d.Schedule, d.TimeOf(d.LineAt(now)), now)
	}
	return next
}
