// Package circuitbreaker has the strategy that stops calling what keeps failing, and tries it again after a break.
//
//	p, err := pipeline.New("orders", circuitbreaker.New(&circuitbreaker.Options{
//		FailureRatio:      0.5,
//		MinimumThroughput: 20,
//		BreakDuration:     10 * time.Second,
//	}))
//	…
//	err = p.Execute(ctx, call)
//	if open, ok := errors.AsType[*circuitbreaker.OpenError](err); ok {
//		log.Printf("not called: %v", open)
//	}
//
// # The circuit
//
// A [Closed] circuit lets every execution through. It opens when the share of failures in the sampling window is high
// enough, or after a number of failures in a row: see [Options]. An [Open] circuit rejects every execution with an
// [*OpenError], whose RetryAfter says how long the break still takes. The first execution after the break makes the
// circuit [HalfOpen]: it lets a few executions through as probes. When enough of them have succeeded, the circuit closes;
// the first that fails opens it again. An [Isolated] circuit was opened by hand, with a [Control], and stays so until it
// is closed by hand.
//
// There is no goroutine and no timer: an execution reads the clock.
//
// # What counts
//
// An outcome is a failure, a success, or neither. By default every error is a failure, with two exceptions that are
// neither:
//
//   - The execution was cancelled: its context is cancelled, or the error matches [context.Canceled]. If the deadline of
//     its context passed during the call, that is a failure: the call had time when it began and did not return. A timeout
//     that is not the context's, such as http.Client.Timeout, is a failure, too.
//   - A strategy further inside rejected the execution, or the wait in its queue ended without a permit, so that nothing
//     was called: a rate limiter, an adaptive limiter, another circuit, a policy of failsafe-go. Such an error has a
//     method NotCalled() bool that returns true; joined errors must all have it. A timeout's error is a failure, unless it
//     ended such a wait.
//
// [Options.Handle] replaces this rule and can look at results, too. An error that it does not handle is neither if it is a
// rejection, context.Canceled, or [context.DeadlineExceeded] while the execution's context is done; otherwise it is a
// success. A panic and a [runtime.Goexit] are failures.
//
// An outcome that is neither does not count in the window, and does not interrupt failures in a row. If it is a probe's,
// another execution takes the probe's place.
//
// A retry inside that gives up because its budget is exhausted returns the last failure, and that counts.
//
// Only executions since the last transition count: a slow failure from before the break does not open a circuit that has
// recovered.
//
// A probe that has not returned after the length of another break keeps running, and its place is given to another
// execution, so that a probe that never returns does not block others. If it returns while the circuit is still half
// open, it counts.
//
// # Order
//
// The usual order is fallback, timeout for the whole, retry, hedge, circuit breaker, rate limiter, timeout for each
// attempt:
//
//   - A retry outside counts each attempt here. It returns the rejection of an open circuit at once: an [OpenError] is not
//     retryable. With [Options.RetryRejections] the retry waits until the break is over, and while a probe runs for its own
//     delay. With a retry inside, the circuit breaker sees only the outcome of all attempts.
//   - A timeout for each attempt belongs inside. Its error is a failure. Without one, a call that hangs counts only when
//     the caller's deadline passes, and never if the caller cancels instead.
//   - A rate limiter inside is called only if the circuit lets the execution through, so that an open circuit costs no
//     permits. Its rejections do not count. A limiter of callers rather than attempts belongs outside the retry.
//
// # Pitfalls
//
//   - With the defaults, a circuit opens only if there are 100 executions in 30 s. If there are fewer, set
//     [Options.MinimumThroughput] or [Options.ConsecutiveFailures].
//   - An error that is the caller's own fault, such as "not found", is a failure unless Handle returns false for it, and a
//     result such as a response with status 503 is not one unless Handle returns true for it.
//     [pipeline.HandleResult] makes a Handle of a function that knows the type of the results.
//   - A caller that gives up by cancelling its context does not open a circuit, however long the call hung: set a timeout
//     inside.
//   - Make one [*Strategy] for each thing that can fail on its own, such as a server. Pipelines that call the same
//     server share its strategy.
//   - A new strategy starts closed. A circuit that a configuration file describes is kept by reloads that do not change
//     it; in code, registry.Keep keeps one. A [Control] that the program keeps stays in force.
//
// # For maintainers
//
// Package adaptive is built on failsafe-go, and this package is not, for these reasons. The circuit breaker of
// failsafe-go cannot free the place of a probe without counting a success or a failure, so a cancelled probe would
// count. It never frees the place of a probe that does not return. It counts the outcome of an execution from before a
// transition as that of a probe. It has either a ratio or a number of failures in a row, and rounds the ratio to
// hundredths. Another module cannot use its windows.
package circuitbreaker
