// Package adaptive has limiters whose limit nobody sets: they find it out from
// how the executions that they let through fare.
//
//   - A [Limiter] limits how many run at once. It compares how long executions
//     take lately with how long they usually take: while that does not grow, its
//     limit rises, and when work piles up in what they call, it falls.
//   - A [Throttler] rejects some, at random: the more, the more of the latest
//     executions failed. It is the client's side of overload, for a server that
//     answers with errors when it has too much to do.
//
// Both are a [limiter.Limiter], so they can be chained, partitioned, and asked
// by whatever asks a limiter. The strategy of this package, [New], is how a
// pipeline uses one, because it also tells the limiter what came of the execution:
//
//	l, err := adaptive.NewLimiter(adaptive.LimiterOptions{MaxLimit: 500})
//	…
//	p, err := pipeline.New("orders",
//		adaptive.New(l, nil),
//		timeout.New(2*time.Second, nil), // inside, so that a timeout counts as a failure
//	)
//
// The arithmetic of the limits is that of failsafe-go.
//
// # What came of it
//
// Releasing the lease says that the execution was a success: it took as long as
// it took. Whoever acquires leases without the strategy says otherwise with
// [Fail] or [Ignore] before Release, which then does nothing.
//
// A [Limiter] learns from successes only. Failures say little about how long the
// work takes: an error that comes at once would look as if there was room for
// more. So a failure just gives the permits back, and does not lower the limit by
// itself; failures that are slow, as timeouts are, show in the executions that
// still succeed. A [Throttler] counts successes and failures.
//
// # Pitfalls
//
// A limiter learns nothing from executions that go past it, and the wrong thing
// from executions that are of different kinds: keep one for each kind, with
// [limiter.NewPartitioned] where there are many. A partition that was forgotten
// begins anew with InitialLimit.
//
// What is measured is the time between grant and release. A retry belongs
// outside of the limiter: inside, its waits would count as work.
//
// With little traffic the limit of a [Limiter] falls to MaxLimitFactor times what
// really runs at once. That is meant: nothing is known about more than that.
package adaptive
