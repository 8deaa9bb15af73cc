// Package chaos has strategies that do harm on purpose, to find out whether a program can handle it: [Fault] fails,
// [Latency] waits, [Outcome] returns a made-up result, and [Behavior] calls a function before the callback runs.
//
//	on := chaos.Options{EnabledFunc: isTester, Rate: 0.05}
//	p, err := pipeline.New("orders",
//		retry.New(nil),
//		timeout.New(2*time.Second, nil),
//		chaos.NewLatency(&chaos.LatencyOptions{Options: on, Latency: 3 * time.Second}),
//		chaos.NewFault(&chaos.FaultOptions{Options: on, Err: io.ErrUnexpectedEOF}), // innermost
//	)
//
// # When something is injected
//
// The strategies are off unless [Options.Enabled] or [Options.EnabledFunc] switches them on. Then they harm a random
// share of the executions, one in a thousand unless [Options.Rate] or [Options.RateFunc] says otherwise. A strategy that
// is off allocates nothing and reads no clock, so it can stay in a pipeline: EnabledFunc can look for the environment,
// or in the context for the user that the execution is for, and Enabled can be set in the file that package reload
// follows.
//
// EnabledFunc is called first, then RateFunc, then the random number is drawn. The context is checked before, after each
// function, and again after what was injected. If it has ended, nothing is injected any more and nothing runs: the error
// is [pipeline.ContextError], and [pipeline.NotCalled] except during a latency, which stands for a call that takes long.
//
// # Order
//
// Usually innermost, in the place of the call that can fail: then everything outside is tested. Inside a retry each
// attempt draws its own number: at a rate of 0.1 one execution in a thousand has a fault three times in a row. Outside a
// retry a fault fails the whole execution. Outside a limiter it takes no permit.
//
// Each of several strategies draws its own number. A strategy that fails keeps those inside it from running: a latency
// outside a fault delays faults, too, and one inside it does not.
//
// # Pitfalls
//
//   - A fault that matches [context.DeadlineExceeded] is a failure like any other as long as the execution's context is
//     not done. To test timeouts, inject latency.
//   - The value of an [Outcome] must be of the type that [pipeline.ExecuteValue] is called for, else that returns
//     [pipeline.ErrResultType]. The constant 0 is an int.
//   - A pointer in [OutcomeOptions.Result] is the same for all executions. Use [OutcomeOptions.ResultFunc] for what can
//     be used only once, such as the body of a response.
//   - An outcome or a fault takes the place of the callback, which does not run.
//   - A circuit breaker, an adaptive limiter and an alert cannot tell an injected fault from a real one. That is the
//     purpose; start with a low rate.
//
// # In a configuration file
//
// A file can set rates, latencies and whether a strategy is on. Results, errors and behaviors are the program's; a file
// refers to them by the name under which the program registered them. A fault needs no name: the default is
// [ErrInjected].
package chaos
