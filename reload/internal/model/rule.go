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

// A Rule is what a file can say of a field besides its type, and the description of the field.
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
		"PermitLimit": atLeast(1, "How many permits may be held at once."),
		"QueueLimit":  queueLimit, "QueueOrder": queueOrder,
	},
	reflect.TypeFor[limiter.FixedWindowOptions](): {
		"PermitLimit": atLeast(1, "How many permits a window has."),
		"Window":      described("How long a window is; more than 0."),
		"QueueLimit":  queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.SlidingWindowOptions](): {
		"PermitLimit":       atLeast(1, "How many permits any window has."),
		"Window":            described("How long a window is; more than 0, and divisible by segments_per_window."),
		"SegmentsPerWindow": atLeast(1, "In how many steps the window slides on."),
		"QueueLimit":        queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.TokenBucketOptions](): {
		"TokenLimit":          atLeast(1, "How many tokens the bucket holds, and so the largest burst."),
		"TokensPerPeriod":     atLeast(1, "How many tokens come in each period."),
		"ReplenishmentPeriod": described("How long a period is; more than 0."),
		"QueueLimit":          queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.PartitionedOptions](): {
		"IdleTimeout":   {Zero: "10s", Doc: "A partition that was idle for longer is forgotten; 10s unless set."},
		"MaxPartitions": atLeast(0, "How many partitions there may be; 0: any number. Set it where keys come from outside."),
	},
	reflect.TypeFor[adaptive.LimiterOptions](): {
		"MinLimit":          {Zero: "1", Doc: "The lowest limit; 1 unless set."},
		"MaxLimit":          {Zero: "200", Doc: "The highest limit; 200 unless set."},
		"InitialLimit":      {Zero: "20", Doc: "The limit to begin with; 20 unless set, or what is nearest to it between the lowest and the highest."},
		"MaxLimitFactor":    {Zero: "5", Least: 1, Bound: true, Doc: "The limit stays below so many times what has run at once lately; 5 unless set."},
		"MaxLimitWindow":    described("For how long the most that ran at once is remembered for that; 0s: only since the last change."),
		"QueueLimit":        queueLimit,
		"QueueOrder":        queueOrder,
		"MinWindow":         {Zero: "1s", Doc: "The shortest time between two changes of the limit; 1s unless set."},
		"MaxWindow":         {Zero: "30s", Doc: "The longest time between two changes of the limit, where executions are long; 30s unless set."},
		"MinSamples":        {Zero: "50", Doc: "How many executions must have succeeded between two changes; 50 unless set."},
		"Quantile":          {Zero: "0.9", Doc: "Which quantile of the execution times stands for all of them, below 1; 0.9 unless set."},
		"BaselineAge":       {Zero: "10", Doc: "Over how many samples of the execution time the usual time is averaged; 10 unless set."},
		"CorrelationWindow": {Zero: "50", Least: 2, Bound: true, Doc: "Over how many changes it is looked whether more at once made anything quicker; 50 unless set."},
	},
	reflect.TypeFor[adaptive.ThrottlerOptions](): {
		"FailureRate":      {Zero: "0.1", Doc: "The part of executions that may fail without anything being rejected, below 1; 0.1 unless set."},
		"Period":           {Zero: "1m", Doc: "How far back executions count, 20ms or more; 1m unless set."},
		"MinExecutions":    {Words: []Word{Off}, Zero: "10", Doc: "How many executions there must have been before any is rejected; 10 unless set."},
		"MaxRejectionRate": {Zero: "0.9", Most: 1, Doc: "The largest part that is rejected, whatever fails; 0.9 unless set."},
	},
	reflect.TypeFor[Store](): {
		"Name": naming(LimiterStore, "What the program has registered to keep the state in."),
	},
	reflect.TypeFor[store.LimiterOptions](): {
		"Outage":          described("What happens while the store is away; fail_closed unless set."),
		"LocalShare":      described("The part of the limit that this instance gives out while the store is away; for fall_back_locally, which needs it."),
		"Block":           atLeast(0, "How many permits the instance takes at once to give them out without asking, at most; 0: each when it is asked for. Not for concurrency."),
		"CacheRejections": described("Reject a key that has nothing left without asking until time has brought something back. Not for concurrency."),
		"NoCoalescing":    described("Make every call a round trip of its own."),
		"Generation":      atLeast(0, "Orders the limits that programs are deployed with: a larger one replaces limits of a smaller one, and those that Reconfigure or a reload has set."),
		"LeaseTTL":        {Zero: "30s", Doc: "For concurrency: how long after an instance has died its permits are free again, 100ms or more; 30s unless set."},
	},
	reflect.TypeFor[PartitionedOptions](): {
		"Key": naming(KeyFunction, "The function of the program's that finds the key."),
	},
}

var (
	queueLimit = atLeast(0, "How many permits may be waited for; 0: nobody waits.")
	queueOrder = described("Who is served first.")
	manual     = described("Only the program moves time on, with TryReplenish.")
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
