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
// There is no goroutine and no timer: time is looked at when somebody comes.
//
// # What counts
//
// An outcome is a failure, a success, or neither. By default every error is a
// failure but a context's, as for a retry; [Options.Handle] says otherwise, and
// sees results, too. A panic and a [runtime.Goexit] are failures. An error of a
// context that is no failure is neither: nobody knows what the answer would have
// been, so it does not count in a window, does not end a row of failures, and as
// the outcome of a probe gives the probe's place to another. Whatever else is no
// failure is a success.
//
// Only what was let through since the last transition counts: a slow failure from
// before the break does not open a circuit that has recovered.
//
// A probe that has not returned after another break keeps running, and its place
// is given to another, so that one which never returns blocks nobody. When it
// does return while the circuit is still half open, it counts.
//
// # Order
//
// The usual order is fallback, rate limiter, retry, circuit breaker, timeout:
//
//   - A retry outside sees the rejections, and waits until the break is over.
//     With a retry inside, the circuit breaker sees only what came of all
//     attempts.
//   - A timeout belongs inside. Its error is a failure, whereas the end of the
//     caller's own context is not: without one, a server that answers nobody never
//     opens the circuit.
//   - A rate limiter belongs outside: inside, its rejections are failures of what
//     is called.
//
// # Pitfalls
//
//   - The defaults need 100 executions in 30 s before anything opens. Where there
//     are fewer, set [Options.MinimumThroughput] or [Options.ConsecutiveFailures].
//   - An error that is the caller's own fault, such as "not found", is a failure
//     unless Handle says no, and a result such as a response with status 503 is
//     none unless Handle says yes. Package retry's Result makes a Handle of a predicate
//     that knows the type.
//   - A deadline that the callback sets for itself ends in
//     [context.DeadlineExceeded], which is a context's error: use a timeout, or
//     Handle.
//   - One circuit stands for one thing that can fail. Pipelines that call the same
//     thing share a [*Strategy]; for several things make one each.
//   - A strategy that is made anew starts closed. Reloads that do not change it keep
//     one that a configuration file describes; in code, registry.Keep does. A
//     [Control] that is kept outside stays in force.
package circuitbreaker
