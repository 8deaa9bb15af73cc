package weirrls

import (
	"time"

	"github.com/weir-go/weir/limiter"
)

// A Domain has the rules for the requests that name it.
type Domain struct {
	Name        string
	Descriptors []Descriptor
}

// A Descriptor is a rule: which entries of a request's descriptor it is for, and their limit. It is for the entry at the
// depth where it stands: the first entry for a Descriptor of a [Domain], the second one for a Descriptor in that, and so
// on. Of the rules of one level these are tried, in this order:
//
//  1. the one with the entry's Key and Value;
//  2. the first whose Value has a *, which stands for any number of characters, and matches;
//  3. the one with the Key and no Value: it has a counter for each value.
//
// A limit applies only to a descriptor that ends where the rule stands.
type Descriptor struct {
	Key   string // Required.
	Value string
	// Limit is nil if only rules further in have limits.
	Limit       *Limit
	Descriptors []Descriptor
	// ShareThreshold makes all values that match a Value with a * share one counter.
	ShareThreshold bool
	// DetailedMetric and ValueToMetric put the values of a descriptor into the names of events and measurements: those
	// of all its entries, or that of this one.
	DetailedMetric, ValueToMetric bool
	// Metadata is returned with the answer if the limit does not reject; see [ServiceOptions.DynamicMetadata]. Its values
	// are those of JSON.
	Metadata map[string]any
}

// A Limit is what a rule limits by. Exactly one of Limiter, Partitioned, Window and Unlimited must be set.
type Limit struct {
	// Name is the limit's name in answers, in events, and in Replaces of other limits. The default for events is the path
	// of the rule.
	Name string
	// Replaces has names of limits that do not apply to a request to which this limit applies.
	Replaces []string

	// Limiter is shared by all values of the descriptor.
	Limiter limiter.Limiter
	// Partitioned has a limiter for each counter; see [PerKey].
	Partitioned limiter.Partitioned[string]
	// Window counts as envoyproxy/ratelimit does.
	Window *Window
	// Unlimited admits every request.
	Unlimited bool

	// Shadow makes the limit decide and report, but never reject.
	Shadow bool
	// Quota makes the limit reject only together with all other limits of the request that have Quota.
	Quota bool
	// OnOverrun says what a request takes that asks for more than is left.
	OnOverrun Overrun
	// FailOpen admits a request if the limiter cannot decide. The outage policy of a store's limiter comes first.
	FailOpen bool
	// Requests and Per are what the answer tells about the limit. The defaults are those of the limiter, if it is one of
	// packages limiter and store.
	Requests uint32
	Per      time.Duration
}

// A Window is a limit as envoyproxy/ratelimit has it. Windows begin at whole units since 1970. The hits of a rejected request are
// counted, and a request with hits_addend 0 is rejected only when more than RequestsPerUnit were counted. The counters
// are those of [ServiceOptions.Counters].
type Window struct {
	RequestsPerUnit uint32
	Unit            Unit
}

// A Unit is the length of a [Window]. The zero Unit is not usable.
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

// An Overrun says what a request takes that asks for more than is left. The protocol cannot say whether a request asks or
// reports what has been used already, as Envoy does at the end of a stream with apply_on_stream_done.
type Overrun uint8

// The kinds of overruns.
const (
	// OverrunNothing takes nothing. It is the default.
	OverrunNothing Overrun = iota
	// OverrunDebt takes all of it, also if another limit rejects the request: nothing is left until the limiter has
	// restored what is above its limit. It is for limits that are asked with hits_addend 0 and then get reports.
	OverrunDebt
	// OverrunRest takes what is left.
	OverrunRest
)

// Rules are the domains of a service, ready for requests. They are not changed; [Service.SetRules] replaces them. They
// own no limiter.
type Rules struct {
	domains map[string]*domain
}

type domain struct{}

// NewRules returns rules of some domains. The error is a [weir.OptionsError] with everything that is wrong.
func NewRules(domains ...Domain) (*Rules, error) { panic("not written yet") }

// PerKey returns a limiter that has one made by factory for each counter of a rule, for [Limit.Partitioned]. If o is
// nil, the defaults of [limiter.PartitionedOptions] apply.
func PerKey(factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	panic("not written yet")
}
