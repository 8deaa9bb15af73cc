// Package weirhttp brings limiters and pipelines to net/http: middleware for servers and a round tripper for clients.
// The middleware works with every router that takes an [http.Handler] or a func(http.Handler) http.Handler.
//
//	perUser, err := weirhttp.PerKey(limiter.FactoryFor[string](limiter.TokenBucketOptions{…}),
//		&limiter.PartitionedOptions{MaxPartitions: 100_000})
//	…
//	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
//		Global: weirhttp.Policy{Limit: weirhttp.Of(slots)}, // asked first, once for a request
//		Policies: map[string]weirhttp.Policy{
//			"per-user": {Limit: weirhttp.ByKey(perUser, weirhttp.Subject(userOf))},
//			"reports":  {Limit: weirhttp.Of(reports), Timeout: time.Minute},
//		},
//		Exempt: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
//	})
//	…
//	mux.Handle("/orders", limits.Handler(orders, "per-user"))
//	mux.Handle("/reports", limits.Handler(reporting, "per-user", "reports"))
//
// The policies of a route are asked in order. A request that a later policy rejects costs nothing in the earlier ones.
// This holds within one call of [Limits.Wrap] only: if middleware of two calls is nested, and the inner middleware
// rejects a request, the request has still paid for the policies of the outer middleware, unless a pipeline sheds it
// without having run the handler; see [Through]. A rejected request gets 429 or 503, depending on the cause, with
// Retry-After if it is known. The handler finds the leases of its request with [LeaseFrom], and corrects what the request
// cost with [Charge].
//
// For a limit by client address, [PerIP] is the middleware in one call. For a client, most callers want [NewTransport].
//
// # Pipelines
//
// [Through] runs handlers in a whole pipeline: timeouts, concurrency limits, circuit breakers that see the status.
// [ByPipeline] makes the limit of a policy of a pipeline, so that a pipeline that a registry reloads applies to the next
// request.
//
// # Where the middleware goes
//
// [Measure], which records every request with its route and status, goes around the mux, outside of all else. Put
// the middleware of compression, caching and the like inside the limits, and authentication outside if a key is the
// authenticated user. Over HTTP/1, net/http does not notice that a client aborts a request with a body until the
// handler has read the body: bound the wait of such requests with [Policy.MaxWait].
package weirhttp

// For maintainers: files that begin with server are the middleware, files that begin with client are the round
// tripper, and files that begin with keys find the key of a request for both. What the middleware has in common with
// the module weirgrpc is in transport/internal. Read these first, in this order:
//
//   - serverpolicy.go: what a policy is.
//   - transport/internal/admission: how a policy asks its limiter, and what a request holds.
//   - serverrequest.go: the way of a request through its policies to the handler.
//   - serverthrough.go: a handler that runs inside a pipeline.
//   - internal/handlerio: the request and the ResponseWriter of handlers, and how their time is limited.
//   - clientexchange.go: a request of the client with all attempts at it.
