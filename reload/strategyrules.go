package reload

import (
	"reflect"

	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// strategyRules are the part of the rules that is about strategies and budgets.
var strategyRules = map[reflect.Type]map[string]rule{
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
		"MaxRetryAfter":    {words: []word{off}, zero: "1m", doc: "The longest wait that a failure can ask for; one that asks for more is returned at once. 1m unless set, off: no limit."},
		"IgnoreRetryAfter": described("Do not wait longer where a failure asks for it."),
	},
	reflect.TypeFor[timeout.Options](): {
		"Name": name("Timeout"),
	},
	reflect.TypeFor[timeoutOptions](): {
		"Timeout": described("How long what is inside may take; more than 0."),
	},
	reflect.TypeFor[retryOptions](): {
		"Handle": naming(handleFunction, "The registered function that reports what is retried. Default: every error except the end of the execution's own context and errors whose method `Retryable() bool` returns false."),
		"Budget": described("The name of a budget of the file, out of which the retries come; without one there may be any number."),
	},
	reflect.TypeFor[rateLimiterOptions](): {
		"Handle":  naming(handleFunction, "For an adaptive limiter or a throttler: the function of the program's that tells what a failure is; every error but a cancellation unless set."),
		"Permits": naming(permitsFunction, "The function of the program's that tells the cost of an execution; 1 unless set."),
	},
	reflect.TypeFor[pipelineOptions](): {
		"Name": described("The name of another pipeline of the file."),
	},
	reflect.TypeFor[circuitbreaker.Options](): {
		"Name": name("CircuitBreaker"),
		"FailureRatio": {
			words: []word{off}, zero: "0.1", most: 1,
			doc: "The circuit opens when so large a part of the executions in the sampling window has failed; 0.1 unless set.",
		},
		"MinimumThroughput":   {zero: "100", doc: "How many executions there must be in the window for the ratio to mean anything; 100 unless set."},
		"SamplingDuration":    {zero: "30s", doc: "How long the sampling window is; 30s unless set."},
		"ConsecutiveFailures": atLeast(0, "The circuit opens after so many failures in a row, too; 0: only by the ratio."),
		"BreakDuration":       {zero: "5s", doc: "How long the circuit stays open; 5s unless set."},
		"HalfOpenProbes":      {zero: "1", doc: "How many executions must then succeed for the circuit to close, and how many of them may run at once; 1 unless set."},
	},
	reflect.TypeFor[circuitBreakerOptions](): {
		"Handle":  naming(handleFunction, "The registered function that reports what a failure is. Default: every error but a cancellation and a rejection by a strategy further inside."),
		"Control": naming(circuitControl, "What the program opens and closes the circuit by."),
	},
	reflect.TypeFor[fallback.Options](): {
		"Name": name("Fallback"),
	},
	reflect.TypeFor[fallbackOptions](): {
		"Action": naming(fallbackAction, "What the program has registered to put in the place of what failed."),
		"Handle": naming(handleFunction, "The registered function that reports what is replaced. Default: every error but the end of the execution's own context."),
	},
	reflect.TypeFor[hedge.Options](): {
		"Name":      name("Hedging"),
		"Delay":     {words: []word{off}, zero: "2s", doc: "How long an attempt has before the next one starts beside it; 2s unless set, off: until it has failed."},
		"AtOnce":    described("Start all attempts together; there is no delay then."),
		"MaxHedges": {words: []word{off}, zero: "1", most: hedge.MostHedges, doc: "How many attempts there may be besides the first; 1 unless set."},
	},
	reflect.TypeFor[hedgingOptions](): {
		"Handle": naming(handleFunction, "The registered function that reports which outcome does not win. Default: every error but the end of the execution's own context."),
		"Budget": described("The name of a budget of the file, out of which the attempts besides the first come; without one there may be any number."),
	},
	reflect.TypeFor[budget.Options](): {
		"Ratio":        {words: []word{off}, zero: "0.2", doc: "How many extra attempts there may be for each execution of the window; 0.2 unless set."},
		"MinPerSecond": {words: []word{off}, zero: "10", doc: "How many extra attempts there may be for each second of the window, in addition to `ratio`; 10 unless set."},
		"Window":       {zero: "10s", doc: "How long what was counted and taken matters, from 1s to 1m; 10s unless set."},
	},
	reflect.TypeFor[chaos.Options](): {
		"Name":    described("How the strategy is called in telemetry; Chaos. and what it does, such as Chaos.Fault, unless set."),
		"Enabled": described("Do it; without this it is off."),
		"Rate": {
			words: []word{off}, zero: "0.001", most: 1,
			doc: "In what part of the executions, at random; 0.001 unless set.",
		},
	},
	reflect.TypeFor[chaos.LatencyOptions](): {
		"Latency": {words: []word{off}, zero: "30s", doc: "How long to wait before going on; 30s unless set."},
	},
	reflect.TypeFor[chaosFaultOptions](): {
		"Error": naming(chaosError, "The error that the program has registered to be returned; chaos.ErrInjected unless set."),
	},
	reflect.TypeFor[chaosOutcomeOptions](): {
		"Outcome": naming(chaosOutcome, "The function of the program's that makes up what is returned."),
	},
	reflect.TypeFor[chaosBehaviorOptions](): {
		"Behavior": naming(chaosBehavior, "The function of the program's that is called first."),
	},
}

func name(usual string) rule {
	return described("How the strategy is called in telemetry; " + usual + " unless set.")
}
