package weirrls

import (
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/limiter"
)

// A Domain has the rules for the requests that name it.
type Domain struct {
	Name        string // Required.
	Descriptors []Descriptor
}

// A Descriptor is a rule: which entries of a request's descriptor it is for, and their limit. It is for the entry at the
// depth where it stands: the first entry for a Descriptor of a [Domain], the second one for a Descriptor in that, and so
// on. Of the rules of one level these are tried, in this order:
//
//  1. the one with the entry's key and value;
//  2. the first one with a * that matches; a * stands for any number of characters;
//  3. the one with the entry's key and no Value.
//
// A limit applies only to a descriptor that ends where the rule stands.
//
// As in envoyproxy/ratelimit, a rule is known by its Key and Value joined with an underscore, and an entry is looked up by
// that name. So a * in a Key is a pattern, too, and the rules {Key: "a_b"} and {Key: "a", Value: "b"} are the same: to
// have both at one level is an error, and either is the rule for an entry with the key a_b.
type Descriptor struct {
	Key   string // Required.
	Value string
	// Limit is nil if only rules further in have limits.
	Limit       *Limit
	Descriptors []Descriptor
	// ShareThreshold makes all values that match a rule with a * share one counter.
	ShareThreshold bool
	// DetailedMetric and ValueToMetric put the values of a descriptor into the names of its events and measurements, in
	// place of [Limit.Name]: the values of all entries, or the value of this one. A rule has up to 1000 such names, of up to
	// 256 bytes. Further values, which clients could make up, are reported under the path of the rule.
	DetailedMetric, ValueToMetric bool
	// Metadata is returned with the answer if the limit does not reject; see [ServiceOptions.DynamicMetadata]. Its values
	// are those of JSON.
	Metadata map[string]any
}

// A Limit is what a rule limits by. Exactly one of Limiter, Partitioned, Window and Unlimited must be set.
//
// # Concurrency
//
// [NewRules] refuses a concurrency limiter, because the protocol has no lease to release. To limit how many requests run
// at once, use a sliding window:
//
//	slots, err := weirrls.PerKey(limiter.SlidingWindowFactory[string](limiter.SlidingWindowOptions{
//		PermitLimit: 10, Window: 5 * time.Minute, SegmentsPerWindow: 10,
//	}), nil)
//	…
//	weirrls.Descriptor{Key: "client", Limit: &weirrls.Limit{Partitioned: slots, OnOverrun: weirrls.OverrunDebt}}
//
// Envoy takes a slot when the request begins, and gives one back at its end by a second descriptor with
// apply_on_stream_done, hits_addend 1 and is_negative_hits. It gives one back also after a rejection, so a rejected request
// must take one: hence OverrunDebt.
//
// The slot that comes back is the oldest or, while more are taken than PermitLimit, that of the last rejected request. While
// requests are shorter than Window less one segment, there are never more at once than PermitLimit. A slot that Envoy never
// gives back, because it has died, is lost until fewer requests were admitted in a window than slots are taken. If all are
// lost, they come back after a window.
type Limit struct {
	// Name is the limit's name in answers, in events, and in Replaces of other limits. The default for events is the path
	// of the rule, such as "tenant.path_/reports/*".
	Name string
	// Replaces has names of limits that do not apply to a request to which this limit applies.
	Replaces []string

	// Limiter is shared by all values of the descriptor.
	Limiter limiter.Limiter
	// Partitioned has a limiter for each counter; see [PerKey]. Each combination of values is a counter of its own,
	// except where ShareThreshold is set. Its key has all entries of the descriptor, such as "tenant=a,path=/reports/1".
	// It has no domain: rules that have the same Partitioned share the counters of equal descriptors. A key of more than
	// 256 bytes is replaced by its SHA-256.
	Partitioned limiter.Partitioned[string]
	// Window counts as envoyproxy/ratelimit does.
	Window *Window
	// Unlimited admits every request.
	Unlimited bool

	// Shadow makes the limit decide and report, but never reject.
	Shadow bool
	// Quota makes the limit reject only together with all other limits of the request that have Quota.
	Quota bool
	// OnOverrun says what a request takes that asks for more than is left. It needs a limiter that is a
	// [limiter.Charger], and must not be set for a Window, which always counts.
	OnOverrun Overrun
	// FailOpen admits a request if the limiter cannot decide: it returns an error, panics, or is closed, or its store is
	// away. The outage policy of a store's limiter comes first. By default such a request is over the limit. A request
	// for more than the limiter can ever grant is over the limit in any case.
	FailOpen bool
	// Requests and Per are what the answer tells about a Limiter or Partitioned; they limit nothing. The defaults are the
	// limits in force if it is a token bucket or a window of packages limiter and store. They are not known for a limiter
	// that [PerKey] makes; without Requests the answer has no current_limit then.
	Requests uint32
	Per      time.Duration
	// Size returns Requests and Per for each answer, if they change while the service runs. If it is set, they must not be.
	Size func() (requests uint32, per time.Duration)
}

// A Window is a limit as envoyproxy/ratelimit has it. Windows begin at whole units since 1970, by the clock of this
// machine. The hits of a rejected request are counted, and a request with hits_addend 0 is rejected only when more than
// RequestsPerUnit were counted. The counters are those of [ServiceOptions.Counters]. Windows of equal descriptors in one
// domain share a counter if their units are equal, also with the limits that requests bring with them.
type Window struct {
	RequestsPerUnit uint32
	Unit            Unit // Required.
}

// An Overrun says what a request takes that asks for more than is left. The protocol cannot say whether a request asks or
// reports what has been used already, as Envoy does at the end of a stream with apply_on_stream_done.
type Overrun uint8

// The kinds of overruns. Their text forms are "nothing", "debt" and "rest".
const (
	// OverrunNothing takes nothing. It is the default.
	OverrunNothing Overrun = iota
	// OverrunDebt takes all of it, also if another limit rejects the request: nothing is left until the limiter has
	// restored what is above its limit. It is for limits that are asked with hits_addend 0 and then get reports. More than
	// 2³³ hits, which are also more than the limit, are taken as a mistake: the request is over the limit and takes nothing.
	OverrunDebt
	// OverrunRest takes what is left.
	OverrunRest
)

var overrunTexts = textenum.Texts[Overrun]{Package: "weirrls", Type: "Overrun", Texts: []string{
	OverrunNothing: "nothing", OverrunDebt: "debt", OverrunRest: "rest",
}}

// String returns the text form, or Overrun(n) for any other number.
func (o Overrun) String() string { return overrunTexts.String(o) }

// MarshalText implements [encoding.TextMarshaler].
func (o Overrun) MarshalText() ([]byte, error) { return overrunTexts.Marshal(o) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Overrun) UnmarshalText(text []byte) error { return overrunTexts.Unmarshal(o, text) }

// Rules are the domains of a service, ready for requests. They are not changed; [Service.SetRules] replaces them. They
// own no limiter.
type Rules struct {
	domains map[string]*domain
}
