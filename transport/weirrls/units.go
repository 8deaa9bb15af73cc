package weirrls

import (
	"slices"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-go/weir/internal/textenum"
)

// A Unit is the length of a [Window]. The zero Unit is invalid. Its text form is "second", "minute" and so on;
// UnmarshalText ignores case.
type Unit uint8

// The units. A month has 30 days and a year has 365, as for envoyproxy/ratelimit.
const (
	Second Unit = iota + 1
	Minute
	Hour
	Day
	Week
	Month
	Year
)

var unitTexts = textenum.Texts[Unit]{Package: "weirrls", Type: "Unit", AnyCase: true, Texts: []string{
	Second: "second", Minute: "minute", Hour: "hour", Day: "day", Week: "week", Month: "month", Year: "year",
}}

// String returns the text form, or Unit(n) for any other number.
func (u Unit) String() string {
	if u == 0 {
		return "Unit(0)"
	}
	return unitTexts.String(u)
}

// MarshalText implements [encoding.TextMarshaler].
func (u Unit) MarshalText() ([]byte, error) { return unitTexts.Marshal(u) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (u *Unit) UnmarshalText(text []byte) error { return unitTexts.Unmarshal(u, text) }

// usable reports whether u is one of the units.
func (u Unit) usable() bool { return u >= Second && u <= Year }

const day = 24 * 60 * 60

// secondsOf are the lengths of the units.
var secondsOf = [...]int64{Second: 1, Minute: 60, Hour: 60 * 60, Day: day, Week: 7 * day, Month: 30 * day, Year: 365 * day}

// unitOf returns the unit of that length in seconds; ok is false if there is none.
func unitOf(seconds int64) (u Unit, ok bool) {
	i := max(slices.Index(secondsOf[:], seconds), 0)
	return Unit(i), i > 0 //nolint:gosec // it fits
}

// A protoUnit is a unit in an answer. The enum of limits that requests bring has the same numbers, but no week.
type protoUnit = ratelimitv3.RateLimitResponse_RateLimit_Unit

// protoUnits are the units in answers. They are in another order, because the week came late.
var protoUnits = [...]protoUnit{
	0:      ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN,
	Second: ratelimitv3.RateLimitResponse_RateLimit_SECOND,
	Minute: ratelimitv3.RateLimitResponse_RateLimit_MINUTE,
	Hour:   ratelimitv3.RateLimitResponse_RateLimit_HOUR,
	Day:    ratelimitv3.RateLimitResponse_RateLimit_DAY,
	Week:   ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	Month:  ratelimitv3.RateLimitResponse_RateLimit_MONTH,
	Year:   ratelimitv3.RateLimitResponse_RateLimit_YEAR,
}

// unitOfProto returns the unit with that number in the protocol; ok is false if there is none.
func unitOfProto(p protoUnit) (u Unit, ok bool) {
	i := max(slices.Index(protoUnits[:], p), 0)
	return Unit(i), i > 0 //nolint:gosec // it fits
}

// A timeSpan is the time in which a counter counts: some whole seconds, from a moment that is a multiple of them.
type timeSpan struct {
	begin   int64 // in seconds since 1970
	seconds int64 // at least 1, at most maxSpan
}

// maxSpan is the longest span, in seconds.
const maxSpan = 365 * day

// spanAt returns the span of that length that contains the moment now, in seconds since 1970.
func spanAt(now, seconds int64) timeSpan {
	return timeSpan{begin: now - now%seconds, seconds: seconds}
}

// rest returns the seconds from the moment now in the span until its end, at least 1.
func (s timeSpan) rest(now int64) int64 { return max(s.begin+s.seconds-now, 1) }
