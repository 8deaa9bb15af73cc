package model

import (
	"maps"
	"math"
	"reflect"
	"strings"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/adaptive"
)

// A Rule is what a file can say of a field other than its type, and the description of the field.
type Rule struct {
	// Words are texts that stand for special numbers.
	Words []Word
	// Zero, if it is not empty, is the default value. A 0 would stand for it and is refused.
	Zero string
	// Least is the smallest value, if Bound is set. It is for the schema; Validate methods check it.
	Least float64
	Bound bool
	// Most is the largest value; 0: any. It is for the schema; Validate methods check it.
	Most float64
	// Names, if it is not empty, is the purpose of the functions that the field names.
	Names Purpose
	// Doc is the description in the schema.
	Doc string
}

// A Word is a text that stands for a number.
type Word struct {
	Text  string
	Value int64
}

var (
	Off     = Word{"off", -1}
	Forever = Word{"forever", math.MaxInt}
)

// ruleOf returns the rule of a field of the struct t. The structs of a program have the tag `reload:"off"` where -1
// means off.
func ruleOf(t reflect.Type, f reflect.StructField) Rule {
	if r, ok := rules[t][f.Name]; ok {
		return r
	}
	var r Rule
	for option := range strings.SplitSeq(f.Tag.Get("reload"), ",") {
		if option == Off.Text {
			r.Words = append(r.Words, Off)
		}
	}
	return r
}

func described(doc string) Rule              { return Rule{Doc: doc} }
func naming(what Purpose, doc string) Rule   { return Rule{Names: what, Doc: doc} }
func atLeast(least float64, doc string) Rule { return Rule{Least: least, Bound: true, Doc: doc} }

// rules are the rules of the fields of weir's own options. A test holds that none is missing and that they agree with
// the Validate methods.
var rules = joined(limiterRules, strategyRules)

func joined(parts ...map[reflect.Type]map[string]Rule) map[reflect.Type]map[string]Rule {
	all := make(map[reflect.Type]map[string]Rule)
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all
}

var limiterRules = map[reflect.Type]map[string]Rule{
	reflect.TypeFor[limiter.ConcurrencyOptions](): {
		"PermitLimit": atLeast(1, "How many permits can be held at once."),
		"QueueLimit":  queueLimit, "QueueOrder": queueOrder,
	},
	reflect.TypeFor[limiter.FixedWindowOptions](): {
		"PermitLimit": atLeast(1, "How many permits each window has."),
		"Window":      described("How long a window is; more than 0."),
		"QueueLimit":  queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.SlidingWindowOptions](): {
		"PermitLimit":       atLeast(1, "How many permits there are in any window of this length."),
		"Window":            described("How long a window is; more than 0, and divisible by segments_per_window."),
		"SegmentsPerWindow": atLeast(1, "In how many steps the window moves on."),
		"QueueLimit":        queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.TokenBucketOptions](): {
		"TokenLimit":          atLeast(1, "How many tokens the bucket holds; the largest burst."),
		"TokensPerPeriod":     atLeast(1, "How many tokens are added in each period."),
		"ReplenishmentPeriod": described("How long a period is; more than 0."),
		"QueueLimit":          queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.PartitionedOptions](): {
		"IdleTimeout":   {Zero: "10s", Doc: "A partition that is idle for longer is removed; 10s unless set."},
		"MaxPartitions": atLeast(0, "How many partitions there can be; 0: no limit. Set it if clients choose the keys."),
	},
	reflect.TypeFor[adaptive.LimiterOptions](): {
		"MinLimit":          {Zero: "1", Doc: "The lowest limit; 1 unless set."},
		"MaxLimit":          {Zero: "200", Doc: "The highest limit; 200 unless set."},
		"InitialLimit":      {Zero: "20", Doc: "The limit at the start; 20 unless set, or the nearest value between min_limit and max_limit."},
		"MaxLimitFactor":    {Zero: "5", Least: 1, Bound: true, Doc: "The limit is at most this many times the largest number of executions that have run at once; 5 unless set."},
		"MaxLimitWindow":    described("How long the largest number of executions that have run at once counts for max_limit_factor; 0s: since the last change of the limit."),
		"QueueLimit":        queueLimit,
		"QueueOrder":        queueOrder,
		"MinWindow":         {Zero: "1s", Doc: "The shortest time between two changes of the limit; 1s unless set."},
		"MaxWindow":         {Zero: "30s", Doc: "The longest time between two changes of the limit if executions are long; 30s unless set."},
		"MinSamples":        {Zero: "50", Doc: "How many executions must succeed between two changes of the limit; 50 unless set."},
		"Quantile":          {Zero: "0.9", Doc: "The quantile of the execution times that the limit depends on, below 1; 0.9 unless set."},
		"BaselineAge":       {Zero: "10", Doc: "How many samples of the execution time the baseline averages; 10 unless set."},
		"CorrelationWindow": {Zero: "50", Least: 2, Bound: true, Doc: "How many changes of the limit are compared with the throughput; 50 unless set."},
	},
	reflect.TypeFor[adaptive.ThrottlerOptions](): {
		"FailureRate":      {Zero: "0.1", Doc: "The part of executions that can fail before any are rejected, below 1; 0.1 unless set."},
		"Period":           {Zero: "1m", Doc: "How far back executions count, 20ms or more; 1m unless set."},
		"MinExecutions":    {Words: []Word{Off}, Zero: "10", Doc: "How many executions there must be in the period before any are rejected; 10 unless set."},
		"MaxRejectionRate": {Zero: "0.9", Most: 1, Doc: "The largest part of executions that is rejected; 0.9 unless set."},
	},
	reflect.TypeFor[Store](): {
		"Name": naming(LimiterStore, "The store that the program has registered, which holds the state."),
	},
	reflect.TypeFor[store.LimiterOptions](): {
		"Outage":          described("What happens while the store is unavailable; fail_closed unless set."),
		"LocalShare":      described("The part of the limit that this instance grants while the store is unavailable; for fall_back_locally, which requires it."),
		"Block":           atLeast(0, "The largest number of permits that the instance takes from the store at once, to grant them without a round trip; 0: each permit is one round trip. Not for concurrency."),
		"CacheRejections": described("Reject a key that has no permits left without a round trip, until it can have permits again. Not for concurrency."),
		"NoCoalescing":    described("Make each call one round trip, instead of one for several calls."),
		"Generation":      atLeast(0, "The order of the limits that programs are deployed with: a larger generation replaces the limits of a smaller one, and the limits of a Reconfigure or a reload."),
		"LeaseTTL":        {Zero: "30s", Doc: "For concurrency: how long after an instance has died its permits are free again, at least 100ms; 30s unless set."},
	},
	reflect.TypeFor[PartitionedOptions](): {
		"Key": naming(KeyFunction, "The registered function that returns the key."),
	},
}

var (
	queueLimit = atLeast(0, "How many permits the queue can wait for; 0: there is no queue.")
	queueOrder = described("The order in which waiting calls get permits.")
	manual     = described("Permits come back only when the program calls TryReplenish.")
)

// Set sets v to the number, and reports whether v is one.
func (w Word) Set(v reflect.Value) bool {
	switch {
	case v.CanInt():
		v.SetInt(w.Value)
	case v.CanFloat():
		v.SetFloat(float64(w.Value))
	default:
		return false
	}
	return true
}
