package weirrls

import (
	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/internal/admission"
)

// A Domain has the rules for the requests that name it.
type Domain struct {
	Name        string // Required.
	Descriptors []Descriptor
}

// A Descriptor is a rule: it matches an entry of a request's descriptor, and can have a limit. A Descriptor of a [Domain]
// matches the first entry, a Descriptor in that one the second entry, and so on. At each level the first of these rules
// matches:
//
//  1. the rule with the entry's key and value;
//  2. the first rule with a * that matches; a * stands for any number of characters;
//  3. the rule with the entry's key and no Value.
//
// A limit applies only to descriptors that end at its rule.
//
// As in envoyproxy/ratelimit, the name of a rule is its Key and Value joined with an underscore, and entries are looked up by
// that name. So a * in a Key is a pattern, too, and the rules {Key: "a_b"} and {Key: "a", Value: "b"} are the same: it is an
// error to have both at one level, and either matches an entry with the key a_b.
type Descriptor struct {
	Key   string // Required.
	Value string
	// Limit is nil if only rules further in have limits.
	Limit       *Limit
	Descriptors []Descriptor
	// ShareThreshold makes all values that match a rule with a * share one counter.
	ShareThreshold bool
	// DetailedMetric and ValueToMetric put values of a descriptor into the names of its events and measurements, in place
	// of [Limit.Name]: the values of all entries, or the value of this one. A rule has at most 1000 such names, of at most
	// 256 bytes. Other values are reported under the path of the rule, because clients can make up values.
	DetailedMetric, ValueToMetric bool
	// Metadata is returned with the answer if the limit does not reject; see [ServiceOptions.DynamicMetadata]. Its values
	// are those of JSON.
	Metadata map[string]any
}

// A Limit is what a rule limits by. Exactly one of Limiter, Partitioned, Window and Unlimited must be set.
//
// The current_limit of the answer is the limit in force, if the limiter, or that of the key, has a method Limits, as token
// buckets and windows of packages limiter and store have.
//
// # Concurrency
//
// [NewRules] refuses a concurrency limiter, because the protocol has no lease to release. To limit how many requests run
// at once, use a sliding window:
//
//	slots, err := weirrls.PerKey(limiter.FactoryFor[string](limiter.SlidingWindowOptions{
//		PermitLimit: 10, Window: 5 * time.Minute, SegmentsPerWindow: 10,
//	}), nil)
//	…
//	weirrls.Descriptor{Key: "client", Limit: &weirrls.Limit{Partitioned: slots, OnOverrun: weirrls.OverrunDebt}}
//
// Envoy takes a slot when the request begins, and gives one back at its end by a second descriptor with
// apply_on_stream_done, hits_addend 1 and is_negative_hits. It also gives one back after a rejection, so a rejected request
// must take one, too: this is what OverrunDebt does.
//
// The oldest slot is given back or, while more slots are taken than PermitLimit, that of the last rejected request. While
// requests are shorter than Window less one segment, there are never more at once than PermitLimit. If Envoy dies, its slots
// are lost until fewer requests were admitted in a window than slots are taken. If all slots are lost, they come back after
// a window.
type Limit struct {
	// Name is the name of the limit in answers, in events, and in the Replaces of other limits. If it is empty, the name
	// in events is the path of the rule, such as "tenant.path_/reports/*".
	Name string
	// Replaces has the names of the limits that do not apply to a request if this limit does.
	Replaces []string

	// Limiter is shared by all values of the descriptor.
	Limiter limiter.Limiter
	// Partitioned has a limiter for each combination of values, except where ShareThreshold is set; see [PerKey]. Its key
	// has all entries of the descriptor, such as "tenant=a,path=/reports/1", but not the domain: rules with the same
	// Partitioned share the limiters of equal descriptors. A key of more than 128 bytes is replaced by its SHA-256.
	Partitioned limiter.Partitioned[string]
	// Window counts as envoyproxy/ratelimit counts.
	Window *Window
	// Unlimited admits every request.
	Unlimited bool

	// Shadow makes the limit decide and report, but never reject.
	Shadow bool
	// Quota makes the limit reject only together with all other limits of the request that have Quota.
	Quota bool
	// OnOverrun selects what a request takes that asks for more than is left. It needs a limiter that is a
	// [limiter.Charger], and must not be set for a Window, which always counts the hits.
	OnOverrun Overrun
	// FailOpen admits a request if the limiter cannot decide: it returns an error, panics or is closed, or its store is
	// away and the limiter's outage policy rejects. By default such a request is over the limit. A request for more than
	// the limiter can ever grant is over the limit in any case.
	FailOpen bool
}

// A Window is a limit as envoyproxy/ratelimit has it. Windows begin at whole units since 1970, by the clock of this
// machine. The hits of rejected requests are counted, and a request with hits_addend 0 is rejected only when more than
// RequestsPerUnit were counted. [ServiceOptions.Counters] count the hits. In a domain, equal descriptors with equal units
// share a counter, also with limits that requests bring with them.
type Window struct {
	RequestsPerUnit uint32
	Unit            Unit // Required.
}

// An Overrun selects what a request takes that asks for more than is left. It is a setting of the limit because the
// protocol does not say whether a request asks, or reports what has been used already, as Envoy does at the end of a stream
// with apply_on_stream_done. Its text form is "nothing", "debt" or "rest".
type Overrun uint8

const (
	// OverrunNothing takes nothing. It is the zero value.
	OverrunNothing Overrun = iota
	// OverrunDebt takes all of it, even if another limit rejects the request. Nothing is left until enough has come back
	// to the limiter. It is for limits that get reports after a look with hits_addend 0. More than 2³³ hits, if they are
	// also more than the limit, count as a mistake: the request is over the limit and takes nothing.
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

// Rules are the domains of a service. Make them with [NewRules]; [Service.SetRules] replaces those of a service. They do not
// own the limiters.
type Rules struct {
	domains map[string]*domain
}

// PerKey returns a limiter for [Limit.Partitioned], with a limiter of factory for each key. If o is nil, the defaults
// apply. Clients can often make up values of descriptors, so a MaxPartitions of 0 is 100,000 here; with -1 the
// number of keys is not bounded. The error is a [weir.OptionsError].
func PerKey(factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	return admission.PerKey("weirrls", factory, o)
}
