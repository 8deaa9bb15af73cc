// Package rate has the arithmetic of limits, and neither clocks nor locks: what a limit says ([Limits]), and what is taken of it
// for one key and comes back as time passes ([State]). Limiters in a process and in a store decide by it.
//
// Programs meet Limits where code is about limiters of any kind. To make a limiter, use the options of package limiter, such as
// limiter.TokenBucketOptions.
package rate

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/internal/validate"
)

// A Kind is how the permits of a limiter come back. The zero Kind is no kind.
type Kind uint8

// The kinds of limits.
const (
	TokenBucket   Kind = iota + 1 // Refill permits come back in each Period
	FixedWindow                   // all permits come back in each Period
	SlidingWindow                 // permits come back a Period after they were taken
	Concurrency                   // permits come back when they are released
	Calendar                      // all permits come back when a day, week, month or year begins
)

var kindTexts = textenum.Texts[Kind]{Package: "rate", Type: "Kind", Texts: []string{
	"", "token_bucket", "fixed_window", "sliding_window", "concurrency", "calendar",
}}

// String returns the name that the kind has in configuration files, such as "token_bucket".
func (k Kind) String() string { return kindTexts.String(k) }

// MarshalText implements [encoding.TextMarshaler].
func (k Kind) MarshalText() ([]byte, error) { return kindTexts.Marshal(k) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Kind) UnmarshalText(text []byte) error { return kindTexts.Unmarshal(k, text) }

// QueueOrder says which waiter is served first when permits come back. It is written "oldest_first", "newest_first" or "fair" in
// configuration files.
type QueueOrder uint8

// The orders of a queue.
const (
	// OldestFirst serves waiters in the order in which they came, and no caller overtakes them. A newcomer that finds
	// no room is rejected. It is the zero value.
	OldestFirst QueueOrder = iota
	// NewestFirst serves the newest waiter first: under overload, its caller is most likely still there. A newcomer
	// takes free permits before the queue, and if there is no room, it pushes out the oldest waiters.
	NewestFirst
	// Fair serves tenants in turn, by the permits that they get: a tenant with many waiters does not delay another's. Of tenants that
	// wait all the time, each gets permits in proportion to its weight, and no share is kept for a tenant that does not ask. If there is
	// no room, the newest waiter of the tenant that waits for most permits for its weight gives way to a newcomer whose tenant would
	// wait for fewer, or has a higher priority.
	// The tenant comes from the context of the call; see limiter.WithTenant.
	Fair
)

var queueOrders = textenum.Texts[QueueOrder]{Package: "limiter", Type: "QueueOrder", Texts: []string{
	OldestFirst: "oldest_first", NewestFirst: "newest_first", Fair: "fair",
}}

// String returns the text form, or QueueOrder(n) for any other number.
func (o QueueOrder) String() string { return queueOrders.String(o) }

// MarshalText implements [encoding.TextMarshaler].
func (o QueueOrder) MarshalText() ([]byte, error) { return queueOrders.Marshal(o) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *QueueOrder) UnmarshalText(text []byte) error { return queueOrders.Unmarshal(o, text) }

// Limits are the limits of a limiter of any kind. Two Limits are equal if they say the same. A field that the kind does not
// have is 0.
type Limits struct {
	Kind Kind `json:"kind"`
	// Permits is the most that can be available or held at once.
	Permits int `json:"permits"`
	// Refill is how many permits come back in each Period: of a token bucket.
	Refill int `json:"refill,omitempty"`
	// Period is the time between two refills of a token bucket, and the window of windows.
	Period time.Duration `json:"period,omitempty"`
	// Segments is the number of steps in which a sliding window slides.
	Segments int `json:"segments,omitempty"`
	// Every is how often all permits of a calendar come back.
	Every Cycle `json:"every,omitempty"`
	// Zone is the name of the time zone of a calendar. If "", it is UTC.
	Zone string `json:"zone,omitempty"`
	// QueueLimit is how many permits can be waited for. If 0, there is no queue.
	QueueLimit int `json:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first.
	QueueOrder QueueOrder `json:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many permits a tenant can wait for if QueueOrder is Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty"`
}

// MaxSegments is the largest number of segments of a sliding window.
const MaxSegments = 1000

// Example returns valid limits of a kind: one permit, and one a second, or a day. Those of an unknown kind are of a token bucket.
func Example(k Kind) Limits {
	switch k {
	case FixedWindow:
		return Limits{Kind: k, Permits: 1, Period: time.Second}
	case SlidingWindow:
		return Limits{Kind: k, Permits: 1, Period: time.Second, Segments: 1}
	case Concurrency:
		return Limits{Kind: k, Permits: 1}
	case Calendar:
		return Limits{Kind: k, Permits: 1, Every: Day}
	default:
		return Limits{Kind: TokenBucket, Permits: 1, Refill: 1, Period: time.Second}
	}
}

// Limits returns l: a value of Limits can stand where options of any kind can.
func (l Limits) Limits() Limits { return l }

// Limited is whatever has limits.
type Limited interface{ Limits() Limits }

// Of returns the limits of o: zero if o is nil, or a nil pointer.
func Of(o Limited) (l Limits) {
	if !isnil.Value(o) {
		l = o.Limits()
	}
	return l
}

// Fields are the names of the fields of Limits in the options of a kind, for the texts of errors. A field that the kind does
// not have is "".
type Fields struct{ Permits, Refill, Period, Segments, Every, Zone string }

var fieldsOf = map[Kind]Fields{
	TokenBucket:   {Permits: "TokenLimit", Refill: "TokensPerPeriod", Period: "ReplenishmentPeriod"},
	FixedWindow:   {Permits: "PermitLimit", Period: "Window"},
	SlidingWindow: {Permits: "PermitLimit", Period: "Window", Segments: "SegmentsPerWindow"},
	Concurrency:   {Permits: "PermitLimit"},
	Calendar:      {Permits: "PermitLimit", Every: "Every", Zone: "Zone"},
}

// Fields returns the names of l's fields.
func (l Limits) Fields() Fields { return fieldsOf[l.Kind] }

// Validate returns a [weir.OptionsError] of package limiter with everything that is wrong with l, or nil. It names the fields
// as the options of the kind do.
func (l Limits) Validate() error {
	var p validate.Problems
	f, known := fieldsOf[l.Kind]
	switch {
	case l == Limits{}:
		p.Add("Options", nil, "must be set")
		return p.Err("limiter")
	case !known:
		p.Add("Kind", uint8(l.Kind), "must be a kind of limits")
		return p.Err("limiter")
	}
	p.AtLeast(f.Permits, l.Permits, 1)
	if f.Refill != "" {
		p.AtLeast(f.Refill, l.Refill, 1)
	} else if l.Refill != 0 {
		p.Add("Refill", l.Refill, "must be 0 for the kind %v", l.Kind)
	}
	if f.Period != "" {
		p.Positive(f.Period, l.Period)
	} else if l.Period != 0 {
		p.Add("Period", l.Period, "must be 0 for the kind %v", l.Kind)
	}
	switch {
	case f.Segments == "":
		if l.Segments != 0 {
			p.Add("Segments", l.Segments, "must be 0 for the kind %v", l.Kind)
		}
	case l.Segments < 1:
		p.AtLeast(f.Segments, l.Segments, 1)
	case l.Segments > MaxSegments:
		p.Add(f.Segments, l.Segments, "must be at most %d", MaxSegments)
	case l.Period > 0 && l.Period%time.Duration(l.Segments) != 0:
		p.Add(f.Period, l.Period, "must be divisible by {%s}, which is %d", f.Segments, l.Segments)
	}
	switch {
	case f.Every != "":
		if !l.Every.valid() {
			p.Add(f.Every, l.Every.String(), cycleRule)
		}
		if _, err := location(l.Zone); err != nil {
			p.Add(f.Zone, l.Zone, "must be the name of a time zone that this machine knows, such as %q, or empty for UTC; if it has no time zone database, import _ %q",
				"Europe/Berlin", "time/tzdata")
		}
	case l.Every != 0 || l.Zone != "":
		p.Add("Every", l.Every.String(), "must be empty, and Zone too, for the kind %v", l.Kind)
	}
	p.AtLeast("QueueLimit", l.QueueLimit, 0)
	if !queueOrders.Has(l.QueueOrder) {
		p.Add("QueueOrder", l.QueueOrder, "must be OldestFirst, NewestFirst or Fair")
	}
	p.AtLeast("QueueLimitPerTenant", l.QueueLimitPerTenant, 0)
	if l.QueueLimitPerTenant > 0 && l.QueueOrder != Fair {
		p.Add("QueueLimitPerTenant", l.QueueLimitPerTenant, "must be 0 unless {QueueOrder} is Fair")
	}
	return p.Err("limiter")
}

// Share returns the limits of a limiter that has a share of l, from 0 to 1. No number is below 1: if the share of a refill is
// less, 1 comes back after a longer period.
func (l Limits) Share(share float64) Limits {
	if share >= 1 {
		return l
	}
	l.Permits = int(max(float64(l.Permits)*share, 1))
	if l.Kind == TokenBucket {
		refill := float64(l.Refill) * share
		if l.Refill = int(max(refill, 1)); refill < 1 {
			l.Period = time.Duration(min(float64(l.Period)/refill, math.MaxInt64/2))
		}
	}
	return l
}

// String describes the limits in words: "token bucket: bursts of 20, then 10 a second; up to 5 wait".
func (l Limits) String() string {
	var words string
	switch l.Kind {
	case TokenBucket:
		words = fmt.Sprintf("token bucket: bursts of %d, then %s", l.Permits, perPeriod(l.Refill, l.Period))
	case FixedWindow:
		words = "fixed window: " + perPeriod(l.Permits, l.Period)
	case SlidingWindow:
		step := l.Period / time.Duration(max(l.Segments, 1))
		words = fmt.Sprintf("sliding window: %d in any %s, in steps of %s", l.Permits, durationtext.Of(l.Period), durationtext.Of(step))
	case Concurrency:
		words = fmt.Sprintf("concurrency limiter: %d at once", l.Permits)
	case Calendar:
		words = fmt.Sprintf("calendar: %d each %v, in %s", l.Permits, l.Every, cmp.Or(l.Zone, "UTC"))
	default:
		return "no limits"
	}
	return words + QueueText(l.QueueLimit, l.QueueOrder)
}

// QueueText describes a queue as [Limits.String] does: "; up to 5 wait", or "; no queue".
func QueueText(limit int, order QueueOrder) string {
	switch {
	case limit <= 0:
		return "; no queue"
	case order == NewestFirst:
		return fmt.Sprintf("; up to %d wait, the newest first", limit)
	case order == Fair:
		return fmt.Sprintf("; up to %d wait, tenants in turn", limit)
	default:
		return fmt.Sprintf("; up to %d wait", limit)
	}
}

// units are the units of rates.
var units = []struct {
	length time.Duration
	name   string
}{{time.Second, "a second"}, {time.Minute, "a minute"}, {time.Hour, "an hour"}}

// perPeriod says how many permits there are in a period, and in a unit of time if that is a whole number.
func perPeriod(n int, period time.Duration) string {
	for _, u := range units {
		if period == u.length {
			return fmt.Sprintf("%d %s", n, u.name)
		}
	}
	words := fmt.Sprintf("%d every %s", n, durationtext.Of(period))
	for _, u := range units {
		if perUnit, ok := times(n, u.length, period); ok {
			return words + fmt.Sprintf(" (%d %s)", perUnit, u.name)
		}
	}
	return words
}

// times returns n × unit / period. ok is false if that is no whole number or overflows.
func times(n int, unit, period time.Duration) (int64, bool) {
	product := int64(n) * int64(unit)
	if period <= 0 || product/int64(unit) != int64(n) || product%int64(period) != 0 {
		return 0, false
	}
	return product / int64(period), true
}
