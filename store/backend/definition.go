package backend

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// A Kind says how the permits of a limiter come back. There is no zero Kind.
type Kind uint8

// The kinds of limiter whose state can be shared.
const (
	KindTokenBucket   Kind = iota + 1 // some permits come back on each line of the grid
	KindFixedWindow                   // all of them do
	KindSlidingWindow                 // those do that were taken a window ago
	KindConcurrency                   // they come back on Release, or when a lease runs out
)

var kindNames = [...]string{"no kind", "token_bucket", "fixed_window", "sliding_window", "concurrency"}

// String returns the name of the kind as it is written in configuration files.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Limits are what a [Backend] has to know of a limiter's options. Times are whole
// microseconds, which every store can reckon with exactly.
type Limits struct {
	Kind     Kind  `json:"kind"`
	Permits  int64 `json:"permits"`            // the most that can be there, or be held, at once
	Period   int64 `json:"period,omitempty"`   // µs between two lines of the grid; of a sliding window: one segment
	Refill   int64 `json:"refill,omitempty"`   // token bucket: what comes back on a line; else 0
	Segments int64 `json:"segments,omitempty"` // sliding window: of how many segments it is; else 0
}

// A Definition is what all instances agree on for one limiter: its limits, and where
// its grid of periods lies on the server's clock. It is never changed; a
// reconfigured limiter has a new Definition with a larger Version.
type Definition struct {
	Name string `json:"name"`
	Limits
	// Version is the moment at which this came into force, in µs of the server's clock
	// since 1970, or one more than the version before if the clock has stepped back.
	Version int64 `json:"version"`
	// Anchor is a line of the grid, in µs of the server's clock since 1970. Line k is
	// at Anchor + k × Period.
	Anchor int64 `json:"anchor,omitempty"`
	// Reached: the change to this definition made a line of the new grid due, which
	// counts once.
	Reached bool `json:"reached,omitempty"`
	// Origin says whose limits these are. Backends keep it as it is.
	Origin
}

// An Origin decides whether the first use of a limiter can replace the limits in force.
type Origin struct {
	// Generation is LimiterOptions.Generation of the limiter that has set the limits.
	Generation int64 `json:"generation,omitempty"`
	// Explicit reports whether Reconfigure has set the limits, and not the first use of a limiter.
	Explicit bool `json:"explicit,omitempty"`
	// Made is when Reconfigure set the limits or, if it has not, when the limiter whose first use set them was
	// made, in µs of the server's clock since 1970. By identifies the process and the number of that event in it.
	Made int64  `json:"made,omitempty"`
	By   string `json:"by,omitempty"`
	// Past has digests of up to 16 earlier limits, the newest first. A first use does not set those limits again. It
	// has letters, digits and spaces.
	Past string `json:"past,omitempty"`
}

// MaxPermits is the largest number of permits: the scripts of some stores reckon with
// floating-point numbers, which are exact up to 2^53, and debts need room.
const MaxPermits = 1 << 50

// MaxPeriod keeps a period inside what the grid can be reckoned with: 100 years.
const MaxPeriod = int64(100 * 365 * 24 * time.Hour / time.Microsecond)

// MaxSegments bounds what a store has to read and write for each decision.
const MaxSegments = 1000

// NewDefinition returns the definition of a limiter that the store has not heard of.
func NewDefinition(name string, l Limits, now int64) *Definition {
	return &Definition{Name: name, Limits: l, Version: now, Anchor: now}
}

// WithLimits returns what follows d when the limits become to at the moment now. A new
// period goes on from the current line; a line of it that is past already counts as
// reached now, once.
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

// TickTime is when a line is reached.
func (g *Schedule) TickTime(line int64) int64 {
	return saturate.Add(g.Anchor, saturate.Mul(line, g.Period))
}

// TickAt is the number of the last line of the grid that was reached at the moment t.
func (d *Definition) TickAt(t int64) int64 { return floorDiv(t-d.Anchor, d.Period) }

func (d *Definition) TickTime(line int64) int64 {
	return saturate.Add(d.Anchor, saturate.Mul(line, d.Period))
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// SameSchedule tells whether lines have the same numbers and bring the same.
func (d *Definition) SameSchedule(other *Definition) bool {
	return d == other || d.Kind == other.Kind && d.Anchor == other.Anchor && d.Period == other.Period &&
		d.Refill == other.Refill && d.Segments == other.Segments
}
