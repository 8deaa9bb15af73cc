package model

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

// strategyRules are the rules of strategies and budgets.
var strategyRules = map[reflect.Type]map[string]Rule{
	reflect.TypeFor[ratelimit.Options](): {
		"Name":   name("RateLimiter"),
		"Shadow": described("Decide and report, but never reject."),
	},
	reflect.TypeFor[retry.Options](): {
		"Name": name("Retry"),
		"MaxRetries": {
			Words: []Word{Off, Forever}, Zero: "3", Least: -1, Bound: true,
			Doc: "How often the first attempt is followed by another; 3 unless set.",
		},
		"Backoff":          described("How the waits grow."),
		"Delay":            {Words: []Word{Off}, Zero: "2s", Doc: "The first wait; 2s unless set."},
		"MaxDelay":         described("The longest backoff, jitter included; 0s: there is none."),
		"Jitter":           described("Make the waits random, so that clients do not come back all at once."),
		"MaxDuration":      described("How long the whole may take until the last attempt starts; 0s: as long as the context allows."),
		"MaxRetryAfter":    {Words: []Word{Off}, Zero: "1m", Doc: "The longest wait that a failure can ask for; one that asks for more is returned at once. 1m unless set, off: no limit."},
		"IgnoreRetryAfter": described("Do not wait longer where a failure asks for it."),
	},
	reflect.TypeFor[timeout.Options](): {
		"Name": name("Timeout"),
	},
	reflect.TypeFor[TimeoutOptions](): {
		"Timeout": described("How long what is inside may take; more than 0."),
	},
	reflect.TypeFor[RetryOptions](): {
		"Handle": naming(HandleFunction, "The registered function that reports what is retried. Default: every error except the end of the execution's own context and errors whose method `Retryable() bool` returns false."),
		"Budget": described("The name of a budget of the file, out of which the retries come; without one there may be any number."),
	},
	reflect.TypeFor[RateLimiterOptions](): {
		"Handle":  naming(HandleFunction, "For an adaptive limiter or a throttler: the function of the program's that tells what a failure is; every error but a cancellation unless set."),
		"Permits": naming(PermitsFunction, "The function of the program's that tells the cost of an execution; 1 unless set."),
	},
	reflect.TypeFor[PipelineOptions](): {
		"Name": described("The name of another pipeline of the file."),
	},
	reflect.TypeFor[circuitbreaker.Options](): {
		"Name": name("CircuitBreaker"),
		"FailureRatio": {
			Words: []Word{Off}, Zero: "0.1", Most: 1,
			Doc: "The circuit opens when so large a part of the executions in the sampling window has failed; 0.1 unless set.",
		},
		"MinimumThroughput":   {Zero: "100", Doc: "How many executions there must be in the window for the ratio to mean anything; 100 unless set."},
		"SamplingDuration":    {Zero: "30s", Doc: "How long the sampling window is; 30s unless set."},
		"ConsecutiveFailures": atLeast(0, "The circuit opens after so many failures in a row, too; 0: only by the ratio."),
		"BreakDuration":       {Zero: "5s", Doc: "How long the circuit stays open; 5s unless set."},
		"HalfOpenProbes":      {Zero: "1", Doc: "How many executions must then succeed for the circuit to close, and how many of them may run at once; 1 unless set."},
	},
	reflect.TypeFor[CircuitBreakerOptions](): {
		"Handle":  naming(HandleFunction, "The registered function that reports what a failure is. Default: every error but a cancellation and a rejection by a strategy further inside."),
		"Control": naming(CircuitControl, "What the program opens and closes the circuit by."),
	},
	reflect.TypeFor[fallback.Options](): {
		"Name": name("Fallback"),
	},
	reflect.TypeFor[FallbackOptions](): {
		"Action": naming(FallbackAction, "What the program has registered to put in the place of what failed."),
		"Handle": naming(HandleFunction, "The registered function that reports what is replaced. Default: every error but the end of the execution's own context."),
	},
	reflect.TypeFor[hedge.Options](): {
		"Name":      name("Hedging"),
		"Delay":     {Words: []Word{Off}, Zero: "2s", Doc: "How long an attempt has before the next one starts beside it; 2s unless set, off: until it has failed."},
		"AtOnce":    described("Start all attempts together; there is no delay then."),
		"MaxHedges": {Words: []Word{Off}, Zero: "1", Most: hedge.MostHedges, Doc: "How many attempts there may be besides the first; 1 unless set."},
	},
	reflect.TypeFor[HedgingOptions](): {
		"Handle": naming(HandleFunction, "The registered function that reports which outcome does not win. Default: every error but the end of the execution's own context."),
		"Budget": described("The name of a budget of the file, out of which the attempts besides the first come; without one there may be any number."),
	},
	reflect.TypeFor[budget.Options](): {
		"Ratio":        {Words: []Word{Off}, Zero: "0.2", Doc: "How many extra attempts there may be for each execution of the window; 0.2 unless set."},
		"MinPerSecond": {Words: []Word{Off}, Zero: "10", Doc: "How many extra attempts there may be for each second of the window, in addition to `ratio`; 10 unless set."},
		"Window":       {Zero: "10s", Doc: "How long what was counted and taken matters, from 1s to 1m; 10s unless set."},
	},
	reflect.TypeFor[chaos.Options](): {
		"Name":    described("How the strategy is called in telemetry; Chaos. and what it does, such as Chaos.Fault, unless set."),
		"Enabled": described("Do it; without this it is off."),
		"Rate": {
			Words: []Word{Off}, Zero: "0.001", Most: 1,
			Doc: "In what part of the executions, at random; 0.001 unless set.",
		},
	},
	reflect.TypeFor[chaos.LatencyOptions](): {
		"Latency": {Words: []Word{Off}, Zero: "30s", Doc: "How long to wait before going on; 30s unless set."},
	},
	reflect.TypeFor[ChaosFaultOptions](): {
		"Error": naming(ChaosError, "The error that the program has registered to be returned; chaos.ErrInjected unless set."),
	},
	reflect.TypeFor[ChaosOutcomeOptions](): {
		"Outcome": naming(ChaosOutcome, "The function of the program's that makes up what is returned."),
	},
	reflect.TypeFor[ChaosBehaviorOptions](): {
		"Behavior": naming(ChaosBehavior, "The function of the program's that is called first."),
	},
}

func name(usual string) Rule {
	return described("How the strategy is called in telemetry; " + usual + " unless set.")
}
