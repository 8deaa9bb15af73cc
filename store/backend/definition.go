package backend

import (
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/textenum"
)

// A Kind is how the permits of a limiter come back. The zero Kind is not used.
type Kind uint8

// The kinds of limiters that can be shared.
const (
	KindTokenBucket   Kind = iota + 1 // some permits come back on each tick
	KindFixedWindow                   // all permits come back on each tick
	KindSlidingWindow                 // permits come back a window after they were taken
	KindConcurrency                   // permits come back when a lease is released or expires
)

var kindNames = textenum.Texts[Kind]{Type: "Kind", Texts: []string{
	"no kind", "token_bucket", "fixed_window", "sliding_window", "concurrency",
}}

// String returns the name that the kind has in configuration files.
func (k Kind) String() string { return kindNames.String(k) }

// Limits are what a [Backend] needs of a limiter's options. All times are whole microseconds, with which every store
// can compute exactly.
type Limits struct {
	Kind     Kind  `json:"kind"`
	Permits  int64 `json:"permits"`            // the most that can be available, or held, at once
	Period   int64 `json:"period,omitempty"`   // µs between two ticks; one segment of a sliding window
	Refill   int64 `json:"refill,omitempty"`   // token bucket: what comes back on a tick; 0 for other kinds
	Segments int64 `json:"segments,omitempty"` // sliding window: its number of segments; 0 for other kinds
}

// A Definition is what all instances agree on for one limiter: its limits, and when the ticks of its schedule are by
// the server's clock. A Definition is never changed; a reconfigured limiter has a new one with a larger Version.
type Definition struct {
	Name string `json:"name"`
	Limits
	// Version is when the definition came into force, in µs of the server's clock since 1970, or the version before
	// plus one if the clock has stepped back.
	Version int64 `json:"version"`
	// Anchor is the time of tick 0, in µs of the server's clock since 1970. Tick k is at Anchor + k × Period.
	Anchor int64 `json:"anchor,omitempty"`
	// Reached reports whether the last tick of the old schedule was at least one new period ago when the definition came
	// into force. Then tick 0 is the moment of the change, and Convert restores what comes back on one tick.
	Reached bool `json:"reached,omitempty"`
	// Origin is which program set the limits, and when. Backends store it unchanged.
	Origin
	// Override is not empty if the limits are overridden for a while: it says until when, by whom, and what the limits are
	// afterwards. It is JSON of at most 16 kB, which package store writes and reads. Backends store it unchanged.
	Override string `json:"override,omitempty"`
}

// An Origin decides whether the first use of a limiter can replace the limits in force.
type Origin struct {
	// Generation is the LimiterOptions.Generation of the limiter that set the limits.
	Generation int64 `json:"generation,omitempty"`
	// Explicit reports whether Reconfigure set the limits, not the first use of a limiter.
	Explicit bool `json:"explicit,omitempty"`
	// Made is when Reconfigure set the limits, in µs of the server's clock since 1970. If Explicit is false, Made is when
	// the limiter was made whose first use set the limits.
	Made int64 `json:"made,omitempty"`
	// By identifies the process that set the limits, and in that process the limiter or the call of Reconfigure.
	By string `json:"by,omitempty"`
	// Past has digests of up to 16 earlier limits, the newest first, of letters, digits and spaces. A first use does
	// not set those limits again.
	Past string `json:"past,omitempty"`
}

// MaxPermits is the largest number of permits. Scripts of some stores compute with floating-point numbers, which are
// exact up to 2^53. MaxPermits is smaller, because more permits can be charged than the limit allows.
const MaxPermits = 1 << 50

// MaxPeriod is the longest period, 100 years in µs, so that ticks can be computed without overflow.
const MaxPeriod = int64(100 * 365 * 24 * time.Hour / time.Microsecond)

// MaxSegments bounds what a store reads and writes for each decision of a sliding window.
const MaxSegments = 1000

// NewDefinition returns the first definition of a limiter.
func NewDefinition(name string, l Limits, now int64) *Definition {
	return &Definition{Name: name, Limits: l, Version: now, Anchor: now}
}

// WithLimits returns the definition that follows d when the limits change at the moment now. If the period or the number
// of segments changes, tick 0 of the new schedule is the last tick of d. If that tick is at least one new period ago,
// tick 0 is now instead, and Reached is set.
func (d *Definition) WithLimits(to Limits, now int64) *Definition {
	next := &Definition{Name: d.Name, Limits: to, Version: max(now, d.Version+1), Anchor: d.Anchor, Origin: d.Origin}
	switch {
	case to.Kind == KindConcurrency || d.Kind == KindConcurrency:
		next.Anchor = now
	case to.Period != d.Period || to.Segments != d.Segments:
		next.Anchor = d.TickTime(d.TickAt(now))
		if now-next.Anchor >= to.Period {
			next.Anchor, next.Reached = now, true
		}
	}
	return next
}

// TickTime returns when a tick of d's schedule is reached, in µs of the server's clock.
func (d *Definition) TickTime(tick int64) int64 { return tickTime(d.Anchor, d.Period, tick) }

func tickTime(anchor, period, tick int64) int64 {
	return saturate.Add(anchor, saturate.Mul(tick, period))
}

// TickAt returns the last tick of d's schedule that is reached at the moment t.
func (d *Definition) TickAt(t int64) int64 { return floorDiv(t-d.Anchor, d.Period) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// SameSchedule reports whether each tick of d is at the same time and restores as many permits as the tick of other with
// the same number.
func (d *Definition) SameSchedule(other *Definition) bool {
	return d == other || d.Kind == other.Kind && d.Anchor == other.Anchor && d.Period == other.Period &&
		d.Refill == other.Refill && d.Segments == other.Segments
}
