package model

import (
	"reflect"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// rules are the rules of the fields of weir's own options: of limiters and their stores, and of strategies and budgets.
// A test checks that none is missing and that they agree with the Validate methods.
var rules = map[reflect.Type]map[string]Rule{
	reflect.TypeFor[limiter.ConcurrencyOptions](): {
		"PermitLimit": atLeast(1, "How many permits can be held at once."),
		"QueueLimit":  queueLimit, "QueueOrder": queueOrder,
	},
	reflect.TypeFor[limiter.FixedWindowOptions](): {
		"PermitLimit": atLeast(1, "How many permits each window has."),
		"Window":      atLeast(1, "How long a window is; more than 0."),
		"QueueLimit":  queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.SlidingWindowOptions](): {
		"PermitLimit":       atLeast(1, "How many permits there are in any window of this length."),
		"Window":            atLeast(1, "How long a window is; more than 0, and divisible by segments_per_window."),
		"SegmentsPerWindow": atLeast(1, "How many segments a window has; the window moves on by one segment at a time."),
		"QueueLimit":        queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.TokenBucketOptions](): {
		"TokenLimit":          atLeast(1, "How many tokens the bucket holds; the largest burst."),
		"TokensPerPeriod":     atLeast(1, "How many tokens are added in each period."),
		"ReplenishmentPeriod": atLeast(1, "How long a period is; more than 0."),
		"QueueLimit":          queueLimit, "QueueOrder": queueOrder, "ManualReplenishment": manual,
	},
	reflect.TypeFor[limiter.PartitionedOptions](): {
		"IdleTimeout":   {Default: "10s", Doc: "A partition that is idle for longer is removed; 10s unless set."},
		"MaxPartitions": atLeast(0, "How many partitions there can be; 0: no limit. Set it if clients choose the keys."),
	},
	reflect.TypeFor[adaptive.LimiterOptions](): {
		"MinLimit":          {Default: "1", Doc: "The lowest limit; 1 unless set."},
		"MaxLimit":          {Default: "200", Doc: "The highest limit; 200 unless set."},
		"InitialLimit":      {Default: "20", Doc: "The limit at the start; 20 unless set, or the nearest value between min_limit and max_limit."},
		"MaxLimitFactor":    {Default: "5", Least: 1, HasLeast: true, Doc: "The limit is at most this many times the largest number of executions that have run at once; 5 unless set."},
		"MaxLimitWindow":    described("How long the largest number of executions that have run at once counts for max_limit_factor; 0s: since the last change of the limit."),
		"QueueLimit":        queueLimit,
		"QueueOrder":        queueOrder,
		"MinWindow":         {Default: "1s", Doc: "The shortest time between two changes of the limit; 1s unless set."},
		"MaxWindow":         {Default: "30s", Doc: "The longest time between two changes of the limit if executions are long; 30s unless set."},
		"MinSamples":        {Default: "50", Doc: "How many executions must succeed between two changes of the limit; 50 unless set."},
		"Quantile":          {Default: "0.9", Below: 1, Doc: "The quantile of the execution times that the limit depends on, below 1; 0.9 unless set."},
		"BaselineAge":       {Default: "10", Doc: "How many samples of the execution time the baseline averages; 10 unless set."},
		"CorrelationWindow": {Default: "50", Least: 2, HasLeast: true, Doc: "How many changes of the limit are compared with the throughput; 50 unless set."},
	},
	reflect.TypeFor[adaptive.ThrottlerOptions](): {
		"FailureRate":      {Default: "0.1", Below: 1, Doc: "The part of executions that can fail before any are rejected, below 1; 0.1 unless set."},
		"Period":           {Default: "1m", Doc: "How far back executions count, 20ms or more; 1m unless set."},
		"MinExecutions":    {Words: []Word{Off}, Default: "10", Doc: "How many executions there must be in the period before any are rejected; 10 unless set."},
		"MaxRejectionRate": {Default: "0.9", Most: 1, Doc: "The largest part of executions that is rejected; 0.9 unless set."},
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
		"LeaseTTL":        {Default: "30s", Doc: "For concurrency: how long after an instance has died its permits are free again, at least 100ms; 30s unless set."},
	},
	reflect.TypeFor[PartitionedOptions](): {
		"Key": naming(KeyFunction, "The registered function that returns the key."),
	},

	reflect.TypeFor[ratelimit.Options](): {
		"Name":   name("RateLimiter"),
		"Shadow": described("Decide and report, but do not reject."),
	},
	reflect.TypeFor[retry.Options](): {
		"Name": name("Retry"),
		"MaxRetries": {
			Words: []Word{Off, Forever}, Default: "3", Least: -1, HasLeast: true,
			Doc: "How many attempts can follow the first one; 3 unless set.",
		},
		"Backoff":          described("How the waits grow."),
		"Delay":            {Words: []Word{Off}, Default: "2s", Doc: "The first wait; 2s unless set."},
		"MaxDelay":         described("The longest backoff, jitter included; 0s: no limit."),
		"Jitter":           described("Make the waits random, so that clients do not retry together."),
		"MaxDuration":      described("How long after the first attempt the last one can start; 0s: as long as the context allows."),
		"MaxRetryAfter":    {Words: []Word{Off}, Default: "1m", Doc: "The longest wait that a failure can ask for; a failure that asks for more is returned at once. 1m unless set, off: no limit."},
		"IgnoreRetryAfter": described("Ignore how long a failure asks to wait."),
	},
	reflect.TypeFor[timeout.Options](): {
		"Name": name("Timeout"),
	},
	reflect.TypeFor[TimeoutOptions](): {
		"Timeout": atLeast(1, "How long the execution inside the timeout can take; more than 0."),
	},
	reflect.TypeFor[RetryOptions](): {
		"Handle": naming(HandleFunction, "The registered function that reports what is retried. Default: every error except the end of the execution's own context and errors whose method `Retryable() bool` returns false."),
		"Budget": described("The name of a budget of the file that the retries are taken from; without one their number is not limited."),
	},
	reflect.TypeFor[RateLimiterOptions](): {
		"Limiter": described("The name of a limiter under limiters."),
		"Handle":  naming(HandleFunction, "For an adaptive limiter or a throttler: the registered function that reports what a failure is. Default: every error except a cancellation."),
		"Permits": naming(PermitsFunction, "The registered function that returns how many permits an execution takes; 1 unless set."),
	},
	reflect.TypeFor[PipelineOptions](): {
		"Name": described("The name of another pipeline of the file."),
	},
	reflect.TypeFor[circuitbreaker.Options](): {
		"Name": name("CircuitBreaker"),
		"FailureRatio": {
			Words: []Word{Off}, Default: "0.1", Most: 1,
			Doc: "The circuit opens when this part of the executions in the sampling window has failed; 0.1 unless set.",
		},
		"MinimumThroughput":   {Default: "100", Doc: "How many executions the sampling window must have for the ratio to open the circuit; 100 unless set."},
		"SamplingDuration":    {Default: "30s", Doc: "How long the sampling window is; 30s unless set."},
		"ConsecutiveFailures": atLeast(0, "The circuit also opens after this many failures in a row; 0: only by the ratio."),
		"BreakDuration":       {Default: "5s", Doc: "How long the circuit stays open; 5s unless set."},
		"RetryRejections":     described("Make a retry outside wait until the break is over. Unless set, it returns the rejection at once."),
		"HalfOpenProbes":      {Default: "1", Doc: "How many executions must then succeed for the circuit to close, and how many of them can run at once; 1 unless set."},
	},
	reflect.TypeFor[CircuitBreakerOptions](): {
		"Handle":  naming(HandleFunction, "The registered function that reports what a failure is. Default: every error except a cancellation and a rejection by a strategy further inside."),
		"Control": naming(CircuitControl, "The registered control, with which the program opens and closes the circuit."),
	},
	reflect.TypeFor[fallback.Options](): {
		"Name": name("Fallback"),
	},
	reflect.TypeFor[FallbackOptions](): {
		"Action": naming(FallbackAction, "The registered action, which returns what replaces a failed outcome."),
		"Handle": naming(HandleFunction, "The registered function that reports what is replaced. Default: every error except the end of the execution's own context."),
	},
	reflect.TypeFor[hedge.Options](): {
		"Name":         name("Hedging"),
		"Delay":        {Words: []Word{Off}, Default: "2s", Doc: "How long to wait for an attempt before the next one starts; 2s unless set, off: until it has failed."},
		"AtOnce":       described("Start all attempts together; there must be no delay."),
		"MaxHedges":    {Words: []Word{Off}, Default: "1", Most: hedge.MostHedges, Doc: "How many attempts there can be in addition to the first; 1 unless set."},
		"AfterRefusal": described("Start the next attempt also after one that was refused: by a limiter, an open circuit, or a server that says when to come back. Set it if each attempt calls another server."),
	},
	reflect.TypeFor[HedgingOptions](): {
		"Handle": naming(HandleFunction, "The registered function that reports which outcome does not win. Default: every error except the end of the execution's own context."),
		"Budget": described("The name of a budget of the file that the attempts after the first are taken from; without one their number is not limited."),
	},
	reflect.TypeFor[budget.Options](): {
		"Ratio":        {Words: []Word{Off}, Default: "0.2", Doc: "How many extra attempts there can be for each execution in the window; 0.2 unless set."},
		"MinPerSecond": {Words: []Word{Off}, Default: "10", Doc: "How many extra attempts there can be for each second of the window, in addition to `ratio`; 10 unless set."},
		"Window":       {Default: "10s", Doc: "How long executions and extra attempts count, from 1s to 1m; 10s unless set."},
	},
	reflect.TypeFor[chaos.Options](): {
		"Name":    described("The name of the strategy in telemetry; Chaos. and what it does, such as Chaos.Fault, unless set."),
		"Enabled": described("Turn the strategy on; it is off unless set."),
		"Rate": {
			Words: []Word{Off}, Default: "0.001", Most: 1,
			Doc: "The part of the executions that are affected, chosen at random; 0.001 unless set.",
		},
	},
	reflect.TypeFor[chaos.LatencyOptions](): {
		"Latency": {Words: []Word{Off}, Default: "30s", Doc: "How long to wait before the execution; 30s unless set."},
	},
	reflect.TypeFor[ChaosFaultOptions](): {
		"Error": naming(ChaosError, "The registered error that is returned; chaos.ErrInjected unless set."),
	},
	reflect.TypeFor[ChaosOutcomeOptions](): {
		"Outcome": naming(ChaosOutcome, "The registered function that returns the outcome."),
	},
	reflect.TypeFor[ChaosBehaviorOptions](): {
		"Behavior": naming(ChaosBehavior, "The registered function that is called before the execution."),
	},
}

var (
	queueLimit = atLeast(0, "How many permits the queue can wait for; 0: there is no queue.")
	queueOrder = described("The order in which waiting calls get permits.")
	manual     = described("Permits come back only when the program calls TryReplenish.")
)

func described(doc string) Rule              { return Rule{Doc: doc} }
func naming(what Purpose, doc string) Rule   { return Rule{Purpose: what, Doc: doc} }
func atLeast(least float64, doc string) Rule { return Rule{Least: least, HasLeast: true, Doc: doc} }

func name(usual string) Rule {
	return described("The name of the strategy in telemetry; " + usual + " unless set.")
}
