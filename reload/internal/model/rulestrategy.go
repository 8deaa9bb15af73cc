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
		"Shadow": described("Decide and report, but do not reject."),
	},
	reflect.TypeFor[retry.Options](): {
		"Name": name("Retry"),
		"MaxRetries": {
			Words: []Word{Off, Forever}, Zero: "3", Least: -1, Bound: true,
			Doc: "How many attempts can follow the first one; 3 unless set.",
		},
		"Backoff":          described("How the waits grow."),
		"Delay":            {Words: []Word{Off}, Zero: "2s", Doc: "The first wait; 2s unless set."},
		"MaxDelay":         described("The longest backoff, jitter included; 0s: no limit."),
		"Jitter":           described("Make the waits random, so that clients do not retry together."),
		"MaxDuration":      described("How long after the first attempt the last one can start; 0s: as long as the context allows."),
		"MaxRetryAfter":    {Words: []Word{Off}, Zero: "1m", Doc: "The longest wait that a failure can ask for; a failure that asks for more is returned at once. 1m unless set, off: no limit."},
		"IgnoreRetryAfter": described("Ignore how long a failure asks to wait."),
	},
	reflect.TypeFor[timeout.Options](): {
		"Name": name("Timeout"),
	},
	reflect.TypeFor[TimeoutOptions](): {
		"Timeout": described("How long what is inside the timeout can take; more than 0."),
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
			Words: []Word{Off}, Zero: "0.1", Most: 1,
			Doc: "The circuit opens when this part of the executions in the sampling window has failed; 0.1 unless set.",
		},
		"MinimumThroughput":   {Zero: "100", Doc: "How many executions the sampling window must have for the ratio to open the circuit; 100 unless set."},
		"SamplingDuration":    {Zero: "30s", Doc: "How long the sampling window is; 30s unless set."},
		"ConsecutiveFailures": atLeast(0, "The circuit also opens after this many failures in a row; 0: only by the ratio."),
		"BreakDuration":       {Zero: "5s", Doc: "How long the circuit stays open; 5s unless set."},
		"HalfOpenProbes":      {Zero: "1", Doc: "How many executions must then succeed for the circuit to close, and how many of them can run at once; 1 unless set."},
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
		"Name":      name("Hedging"),
		"Delay":     {Words: []Word{Off}, Zero: "2s", Doc: "How long to wait for an attempt before the next one starts; 2s unless set, off: until it has failed."},
		"AtOnce":    described("Start all attempts together; there must be no delay."),
		"MaxHedges": {Words: []Word{Off}, Zero: "1", Most: hedge.MostHedges, Doc: "How many attempts there can be in addition to the first; 1 unless set."},
	},
	reflect.TypeFor[HedgingOptions](): {
		"Handle": naming(HandleFunction, "The registered function that reports which outcome does not win. Default: every error except the end of the execution's own context."),
		"Budget": described("The name of a budget of the file that the attempts after the first are taken from; without one their number is not limited."),
	},
	reflect.TypeFor[budget.Options](): {
		"Ratio":        {Words: []Word{Off}, Zero: "0.2", Doc: "How many extra attempts there can be for each execution in the window; 0.2 unless set."},
		"MinPerSecond": {Words: []Word{Off}, Zero: "10", Doc: "How many extra attempts there can be for each second of the window, in addition to `ratio`; 10 unless set."},
		"Window":       {Zero: "10s", Doc: "How long executions and extra attempts count, from 1s to 1m; 10s unless set."},
	},
	reflect.TypeFor[chaos.Options](): {
		"Name":    described("The name of the strategy in telemetry; Chaos. and what it does, such as Chaos.Fault, unless set."),
		"Enabled": described("Turn the strategy on; it is off unless set."),
		"Rate": {
			Words: []Word{Off}, Zero: "0.001", Most: 1,
			Doc: "The part of the executions that are affected, chosen at random; 0.001 unless set.",
		},
	},
	reflect.TypeFor[chaos.LatencyOptions](): {
		"Latency": {Words: []Word{Off}, Zero: "30s", Doc: "How long to wait before the execution; 30s unless set."},
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

func name(usual string) Rule {
	return described("The name of the strategy in telemetry; " + usual + " unless set.")
}
