package rlsconfig

import (
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/transport/weirrls"
)

// Mode is how requests in a unit of time are counted.
type Mode uint8

// The modes.
const (
	// DefaultMode is what a file leaves out.
	DefaultMode Mode = iota
	// Exact is a sliding window in ten steps, and a rejected request costs nothing.
	Exact
	// Envoy counts as envoyproxy/ratelimit does, see [weirrls.Window].
	Envoy
)

var modeTexts = textenum.Texts[Mode]{Package: "weir rls", Type: "Mode", Texts: []string{DefaultMode: "default", Exact: "exact", Envoy: "envoy"}}

// String returns the text form, or Mode(n) for any other number.
func (m Mode) String() string { return modeTexts.String(m) }

// MarshalText implements [encoding.TextMarshaler].
func (m Mode) MarshalText() ([]byte, error) { return modeTexts.Marshal(m) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Mode) UnmarshalText(text []byte) error { return modeTexts.Unmarshal(m, text) }

// Body is the form of the body of a response to a request that is rejected.
type Body uint8

// The forms of bodies.
const (
	// EmptyBody leaves the body to Envoy.
	EmptyBody Body = iota
	// ProblemBody is problem details.
	ProblemBody
)

var bodyTexts = textenum.Texts[Body]{Package: "weir rls", Type: "Body", Texts: []string{EmptyBody: "none", ProblemBody: "problem-json"}}

// String returns the text form, or Body(n) for any other number.
func (b Body) String() string { return bodyTexts.String(b) }

// MarshalText implements [encoding.TextMarshaler].
func (b Body) MarshalText() ([]byte, error) { return bodyTexts.Marshal(b) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Body) UnmarshalText(text []byte) error { return bodyTexts.Unmarshal(b, text) }

// Unit is a unit of time. Its values are those of [weirrls.Unit] less 1: the schema lists the texts of the values from 0.
type Unit uint8

var unitTexts = textenum.Texts[Unit]{Package: "weir rls", Type: "Unit", Texts: []string{
	weirrls.Second - 1: "second", weirrls.Minute - 1: "minute", weirrls.Hour - 1: "hour", weirrls.Day - 1: "day",
	weirrls.Week - 1: "week", weirrls.Month - 1: "month", weirrls.Year - 1: "year",
}, AnyCase: true}

// String returns the text form, or Unit(n) for any other number.
func (u Unit) String() string { return unitTexts.String(u) }

// MarshalText implements [encoding.TextMarshaler].
func (u Unit) MarshalText() ([]byte, error) { return unitTexts.Marshal(u) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (u *Unit) UnmarshalText(text []byte) error { return unitTexts.Unmarshal(u, text) }

// inService returns the unit as package weirrls has it.
func (u Unit) inService() weirrls.Unit { return weirrls.Unit(u) + 1 }

// length returns how long the unit is.
func (u Unit) length() time.Duration {
	const day = 24 * time.Hour
	return [...]time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day}[u]
}
