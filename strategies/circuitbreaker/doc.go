// Package circuitbreaker has the strategy that stops calling what keeps failing,
// and tries it again after a break.
//
//	p, err := pipeline.New("orders", circuitbreaker.New(&circuitbreaker.Options{
//		FailureRatio:      0.5,
//		MinimumThroughput: 20,
//		BreakDuration:     10 * time.Second,
//	}))
//	…
//	err = p.Execute(ctx, call)
//	if open, ok := errors.AsType[*circuitbreaker.OpenError](err); ok {
//		log.Printf("not called, try again in %v", open.RetryAfter)
//	}
//
// # The circuit
//
// A [Closed] circuit lets everything through. It opens when the ratio of failures
// in the sampling window is high enough and there was enough to judge by, or
// after so many failures in a row: see [Options]. An [Open] one rejects everything
// with an [*OpenError] that says when to come back. The first execution after the
// break makes it [HalfOpen]: a few executions are let through as probes. When
// enough of them have succeeded the circuit closes, and the first that fails opens
// it again. An [Isolated] one was opened by hand, with a [Control], and stays so
// until it is closed by hand.
//
// There is no goroutine and no timer: the clock is read when an execution comes.
//
// # What counts
//
// An outcome is a failure, a success, or neither. By default every error is a
// failure, with two exceptions that are neither:
//
//   - The execution was cancelled: its context is, or the error is [context.Canceled]. If
//     the deadline of its context passed during the call instead, that is a failure: the call had
//     time when it began and did not return. A timeout that is not the context's, such
//     as http.Client.Timeout, is a failure, too.
//   - A strategy further inside rejected the execution, or the wait in its queue came to
//     nothing, so that nothing was called: a rate limiter, an adaptive limiter, another
//     circuit, a policy of failsafe-go. Such an error has a method NotCalled() bool that
//     returns true; of errors that are joined all must have it. A timeout's error is a
//     failure, unless it ended such a wait.
//
// [Options.Handle] replaces this rule and sees results, too. An error that it does not
// handle is neither if it is a rejection, context.Canceled, or
// [context.DeadlineExceeded] while the execution's context is done; otherwise it is a
// success. A panic and a [runtime.Goexit] are failures.
//
// An outcome that is neither does not count in the window and does not end a row of
// failures. If it is a probe's, another execution takes the probe's place.
//
// A retry that gives up because its budget is exhausted returns the last failure, and
// that counts.
//
// Only what was let through since the last transition counts: a slow failure from
// before the break does not open a circuit that has recovered.
//
// A probe that has not returned after another break keeps running, and its place
// is given to another, so that one which never returns does not block others. When it
// does return while the circuit is still half open, it counts.
//
// # Order
//
// The usual order is fallback, timeout for the whole, retry, hedge, circuit breaker,
// rate limiter, timeout for each attempt:
//
//   - A retry outside sees the rejections, and waits until the break is over.
//     With a retry inside, the circuit breaker sees only what came of all
//     attempts.
//   - A timeout for each attempt belongs inside. Its error is a failure. Without one
//     a call that hangs counts only when the caller's deadline passes, and never if the
//     caller cancels instead.
//   - A rate limiter inside is asked only when the circuit is closed, so that an open
//     circuit costs no permits. Its rejections do not count. One that limits callers
//     rather than attempts stands outside of the retry.
//
// # Pitfalls
//
//   - The defaults need 100 executions in 30 s before anything opens. Where there
//     are fewer, set [Options.MinimumThroughput] or [Options.ConsecutiveFailures].
//   - An error that is the caller's own fault, such as "not found", is a failure
//     unless Handle says no, and a result such as a response with status 503 is
//     none unless Handle says yes. Package retry's Result makes a Handle of a predicate
//     that knows the type.
//   - A caller that gives up by cancelling its context does not open a circuit, however
//     long the call hung: set a timeout inside.
//   - One circuit stands for one thing that can fail. Pipelines that call the same
//     thing share a [*Strategy]; for several things make one each.
//   - A new strategy starts closed. Reloads that do not change it keep
//     one that a configuration file describes; in code, registry.Keep does. A
//     [Control] that is kept outside stays in force.
package circuitbreaker
