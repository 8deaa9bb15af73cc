// Package chaos has strategies that do harm on purpose, to find out whether a
// program bears it: [Fault] fails, [Latency] takes its time, [Outcome] makes up a
// result, and [Behavior] does whatever it is told to before the callback runs.
//
//	on := chaos.Options{EnabledFunc: isTester, Rate: 0.05}
//	p, err := pipeline.New("orders",
//		retry.New(nil),
//		timeout.New(2*time.Second, nil),
//		chaos.NewLatency(&chaos.LatencyOptions{Options: on, Latency: 3 * time.Second}),
//		chaos.NewFault(&chaos.FaultOptions{Options: on, Err: io.ErrUnexpectedEOF}), // innermost
//	)
//
// # When they do
//
// They are off unless [Options.Enabled] or [Options.EnabledFunc] says otherwise, and
// then harm a random part of the executions, one in a thousand unless [Options.Rate]
// or [Options.RateFunc] says otherwise. A strategy that is off allocates nothing and
// reads no clock, so it can stay in a pipeline and wait for its day: a function can
// ask for the environment, or in the context for the user that the execution is for,
// and [Options.Enabled] can be set in the file that package reload follows.
//
// What is asked is asked in this order: EnabledFunc, RateFunc, chance. The context is
// looked at before, after each function, and again after what was injected. If it has
// ended nothing is injected any more and nothing runs: the error is
// [pipeline.ContextError].
//
// # Where they stand
//
// Innermost, as a rule, in the place of what fails in earnest: then everything
// outside is put to the test. Inside of a retry each attempt takes its chance: at a
// rate of 0.1 one execution in a thousand meets a fault three times running. Outside
// of a retry a fault fails the whole execution. Outside of a limiter it takes no
// permit.
//
// Of several, each takes its own chance. Those inside of one that fails are not asked:
// a latency outside of a fault delays faults, too, and one inside of it does not.
//
// # Pitfalls
//
//   - A fault that matches [context.DeadlineExceeded] is a failure like any other as
//     long as the execution's context is not done. To try out timeouts inject latency.
//   - The value of an [Outcome] must be of the type that [pipeline.ExecuteValue] is
//     called for, else that returns [pipeline.ErrResultType]: mind that 0 is an int.
//   - A pointer in [OutcomeOptions.Results] is the same for all executions. What can
//     be used once, as the body of a response, is for [OutcomeOptions.ResultFunc].
//   - An outcome or a fault takes the place of the callback, which does not run.
//   - A circuit breaker, a limiter that adapts and an alert see no difference between
//     a fault of ours and a real one. That is the point; start with a low rate.
//
// # In a configuration file
//
// Rates, latencies and whether a strategy is on can be written in a file; results,
// errors and behaviours are the program's, and a file can name what it registered. A
// fault needs no name: without one it is [ErrInjected].
package chaos
