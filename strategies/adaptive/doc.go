// Package adaptive has limiters that find their limit themselves, from the executions that they let through.
//
//   - A [Limiter] limits how many executions run at once. It compares how long executions take now with how long they
//     usually take: while that does not grow, its limit rises, and when work queues up in what they call, it falls.
//   - A [Throttler] rejects a random share of the executions: the more of the latest have failed, the larger the share. It
//     is a client's protection of a server that answers with errors when it is overloaded.
//
// Both are a [limiter.Limiter], so they can be chained, partitioned, and used like any other. In a pipeline use the
// strategy of this package, [New], because it also hands the outcome of each execution to the limiter:
//
//	l, err := adaptive.NewLimiter(&adaptive.LimiterOptions{MaxLimit: 500})
//	…
//	p, err := pipeline.New("orders",
//		adaptive.New(l, nil),
//		timeout.New(2*time.Second, nil), // inside, so that a timeout counts as a failure
//	)
//
// The limits are computed by failsafe-go.
//
// # Outcomes
//
// Releasing a lease records a success. Code that acquires leases without the strategy records other outcomes by calling
// [Fail] or [Ignore] before Release, which then does nothing.
//
// A [Limiter] learns only from successes. Failures say little about how long the work takes: an error that comes at once
// would look as if more executions could run. So a failure just releases the permits, and does not lower the limit by
// itself. Failures that are slow, such as timeouts, show in the executions that still succeed. A [Throttler] counts
// successes and failures.
//
// # Pitfalls
//
// A limiter learns nothing from executions that bypass it, and the wrong thing from executions of different kinds: make
// one for each kind, with [limiter.NewPartitioned] if there are many. A partition that was dropped begins again with
// InitialLimit.
//
// The time that counts is that between grant and release. In the pipeline of a weirhttp.Transport it ends with the header of
// the response, whichever strategy holds the lease, although the permits are held until the body has been read: the client
// reads that as fast as it wants. A retry belongs outside the limiter: inside, its waits would count as work.
//
// A rejection has no RetryAfter. So a retry outside asks again after its own delay, until no retry is left. That is cheap,
// because nothing was called, but it lets through more than a [Throttler] meant to: its Handle can return false for
// [ratelimit.RejectedError].
//
// To limit a rate as well, make a [limiter.Chain] of the rate limiter and the adaptive one, in that order: what the adaptive limiter
// rejects costs no permit, and a wait for a permit does not count as work. Two strategies in a row do not do both.
//
// With little traffic the limit of a [Limiter] falls to MaxLimitFactor times the number of executions that run at once.
// That is intended: the limiter knows nothing about more than that.
package adaptive
