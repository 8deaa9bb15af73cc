// Package weirfailsafe connects weir and failsafe-go: any policy of failsafe-go is a [pipeline.Strategy], and a rate limiter of
// weir is a policy of failsafe-go.
//
//	breaker := circuitbreaker.NewBuilder[any]().WithFailureThreshold(5).Build()
//	p, err := pipeline.New("orders",
//		retry.New(nil),
//		weirfailsafe.New(nil, breaker, bulkhead.New[any](10)), // one executor for both
//	)
//
//	limited, err := weirfailsafe.FromLimiter[*http.Response](bucket, nil)
//	client := failsafehttp.NewRoundTripper(nil,
//		retrypolicy.NewBuilder[*http.Response]().WithDelayFunc(weirfailsafe.RetryAfter).Build(),
//		limited,
//	)
//
// If weir has a strategy of its own for something, use that: it costs much less, and does not have the pitfalls below.
//
// # Policies in a pipeline
//
// Pass policies that are neighbors to one [New]: they share an executor. Policies for different types of results need
// strategies of their own, one beside the other.
//
// The strategy adds what a pipeline promises and failsafe-go does not. An execution whose context is done runs nothing. A
// rejection matches [pipeline.ErrRejected], and still the error of failsafe-go. A panic or a [runtime.Goexit] of the
// callback reaches the caller unchanged, and no policy keeps a permit or a half-open circuit: the executor sees an error
// ([pipeline.PanicError]) and ends first. For that the callback runs in a goroutine of its own, as it does in a hedge policy
// anyway.
//
// # Pitfalls of failsafe-go that remain
//
// A retry policy drops a success if the context ended meanwhile; so does a timeout, which also gives the callback's
// context no deadline and no cause. A hedge policy returns while its other attempts still run; the panic of one of them
// then reaches only the listener, see [EventPanic]. A policy that handles only some errors takes a panic for a success
// unless [pipeline.ErrAborted] is among them. A panic of a listener or a predicate of a policy, as opposed to one of the
// callback, still loses what other policies hold.
//
// # Limiters in an executor
//
// [FromLimiter] makes a policy for failsafe.With and for failsafe-go's packages for HTTP and gRPC. A rejection keeps its type and
// also matches ratelimiter.ErrExceeded, for which those packages look. So a handler of failsafehttp answers 429. It cannot send a
// Retry-After header, because a policy has no access to the response; the text of the body has the wait. It also does not
// hand the request's context to its policies: a limiter there should have no queue, because a request waits on in it
// after the client has gone.
//
// In gRPC the rejections of failsafe-go have no status of their own, and neither have these; [FromLimiterOptions.MapError] can
// make one. In a server's tap handle (failsafegrpc.NewServerInHandle) a limiter never waits.
package weirfailsafe
