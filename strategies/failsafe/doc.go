// Package weirfailsafe is the bridge between weir and failsafe-go, both ways: any
// policy of failsafe-go is a [pipeline.Strategy], and a pipeline or a rate limiter
// of weir is a failsafe-go policy. Its directory is strategies/failsafe; the name
// of the package leaves the name failsafe to failsafe-go's.
//
//	breaker := circuitbreaker.NewBuilder[any]().WithFailureThreshold(5).Build()
//	p, err := pipeline.New("orders",
//		retry.New(nil),
//		weirfailsafe.New(nil, breaker, bulkhead.New[any](10)), // one executor for both
//	)
//
//	client := failsafehttp.NewRoundTripper(nil,
//		retrypolicy.NewBuilder[*http.Response]().WithDelayFunc(weirfailsafe.RetryAfter).Build(),
//		weirfailsafe.FromLimiter[*http.Response](bucket, nil),
//	)
//
// What weir has a strategy of its own for is better had from there: those cost
// much less, and do not have the faults below.
//
// # Policies in a pipeline
//
// Hand policies that are neighbours to one [New]: they share an executor. Policies
// for different types of result go into strategies of their own, one beside the
// other.
//
// The bridge adds what a pipeline promises and failsafe-go does not. An execution
// whose context is done runs nothing. A rejection is [pipeline.ErrRejected], and
// still the error of failsafe-go that it was. A panic or a [runtime.Goexit] of the
// callback goes to the caller unchanged, and no policy is left with a permit that
// does not come back or a circuit that stays half-open: the executor sees an error
// ([PanicError]) and comes to an end first. For that the callback runs on a
// goroutine of its own, as it does in a hedge policy anyway.
//
// # Pitfalls of failsafe-go that stay
//
// A retry policy drops a success if the context ended meanwhile; so does a
// timeout, which also gives the callback's context no deadline and no cause. A
// hedge policy returns while its other attempts still run; one that panics then
// can tell nobody but the listener, see [EventPanic]. A policy that handles only
// some errors takes a panic for a success unless [pipeline.ErrAborted] is among
// them. A panic of a listener or a predicate of a policy, as opposed to the
// callback's, still loses what other policies hold.
//
// # Pipelines in an executor
//
// [FromPipeline] and [FromLimiter] make policies for failsafe.With and for
// failsafe-go's packages for HTTP and gRPC. A rejection by weir keeps its type and
// besides answers for what those packages look for: a timeout for
// timeout.ErrExceeded, any other for ratelimiter.ErrExceeded. So a handler of
// failsafehttp answers 429 and 503. It cannot answer with a Retry-After header, a
// policy has no access to the response; the text of the body says when to come
// back. Nor does it hand the request's context to its policies: a limiter there
// should have no queue, since who waits in it waits on when the client has gone.
// And it returns no error of its own, so a timeout of weir ends the request's
// context, but being late is a success.
//
// In gRPC the rejections of failsafe-go have no status of their own, and neither
// have these; [PolicyOptions.MapError] is the place to make one. In a server's tap
// handle (failsafegrpc.NewServerInHandle) a limiter never waits.
package weirfailsafe
