package reload

import (
	"math"
	"reflect"
	"strings"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// A rule is what a file wants to know of a field besides its type.
type rule struct {
	// words are texts that stand for numbers which mean something special.
	words []word
	// zero: a 0 would stand for a default that it does not look like, and is
	// refused in a file, where a field can be left out instead. It says which.
	zero string
	// least is the smallest value for the schema; the check is the Validate
	// method's.
	least float64
	bound bool // least is set
	// doc is the description for the schema.
	doc string
}

type word struct {
	text  string
	value int64
}

var (
	off     = word{"off", -1}
	forever = word{"forever", math.MaxInt}
)

// ruleOf returns the rule of a field of struct t. A program's own structs say
// `reload:"off"` where -1 switches something off.
func ruleOf(t reflect.Type, f reflect.StructField) rule {
	if r, ok := rules[t][f.Name]; ok {
		return r
	}
	var r rule
	for option := range strings.SplitSeq(f.Tag.Get("reload"), ",") {
		if option == off.text {
			r.words = append(r.words, off)
		}
	}
	return r
}

func described(doc string) rule              { return rule{doc: doc} }
func atLeast(least float64, doc string) rule { return rule{least: least, bound: true, doc: doc} }

// rules are those of weir's own options. A test holds that none is missing and
// that each least is what Validate says.
var rules = map[reflect.Type]map[string]rule{
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
		"IdleTimeout":   {zero: "10s", doc: "A partition that was idle for longer is forgotten; 10s unless set."},
		"MaxPartitions": atLeast(0, "How many partitions there may be; 0: any number. Set it where keys come from outside."),
	},
	reflect.TypeFor[ratelimit.Options](): {
		"Name":   name("RateLimiter"),
		"Shadow": described("Decide and report, but never reject."),
	},
	reflect.TypeFor[retry.Options](): {
		"Name": name("Retry"),
		"MaxRetries": {
			words: []word{off, forever}, zero: "3", least: -1, bound: true,
			doc: "How often the first attempt is followed by another; 3 unless set.",
		},
		"Backoff":          described("How the waits grow."),
		"Delay":            {words: []word{off}, zero: "2s", doc: "The first wait; 2s unless set."},
		"MaxDelay":         described("The longest backoff, jitter included; 0s: there is none."),
		"Jitter":           described("Make the waits random, so that clients do not come back all at once."),
		"MaxDuration":      described("How long the whole may take until the last attempt starts; 0s: as long as the context allows."),
		"IgnoreRetryAfter": described("Do not wait longer where a failure asks for it."),
	},
	reflect.TypeFor[timeout.Options](): {
		"Name": name("Timeout"),
	},
	reflect.TypeFor[timeoutOptions](): {
		"Timeout": described("How long what is inside may take; more than 0."),
	},
	reflect.TypeFor[retryOptions](): {
		"Handle": described("The function of the program's that tells what is retried; every error but a context's unless set."),
	},
	reflect.TypeFor[rateLimiterOptions](): {
		"Permits": described("The function of the program's that tells the cost of an execution; 1 unless set."),
	},
	reflect.TypeFor[partitionedOptions](): {
		"Key": described("The function of the program's that finds the key."),
	},
	reflect.TypeFor[pipelineOptions](): {
		"Name": described("The name of another pipeline of the file."),
	},
}

var (
	queueLimit = atLeast(0, "How many permits may be waited for; 0: nobody waits.")
	queueOrder = described("Who is served first.")
	manual     = described("Only the program moves time on, with TryReplenish.")
)

func name(usual string) rule {
	return described("How the strategy is called in telemetry; " + usual + " unless set.")
}
