// Package weirrls is the rate limit service that Envoy asks, envoy.service.ratelimit.v3.RateLimitService, over limiters
// of weir: in process, on Redis or on PostgreSQL. Istio and Contour ask it, too. The command weir rls is such a server,
// configured by a file; this package is for programs that serve the protocol themselves.
//
//	perClient, err := weirrls.PerKey(limiter.SlidingWindowFactory[string](limiter.SlidingWindowOptions{…}), nil)
//	…
//	rules, err := weirrls.NewRules(weirrls.Domain{
//		Name: "edge",
//		Descriptors: []weirrls.Descriptor{
//			{Key: "remote_address", Limit: &weirrls.Limit{Partitioned: perClient}},
//			{Key: "path", Value: "/reports/*", Limit: &weirrls.Limit{Limiter: reports}},
//		},
//	})
//	…
//	service, err := weirrls.NewService(rules, nil)
//	…
//	server := grpc.NewServer()
//	ratelimitv3.RegisterRateLimitServiceServer(server, service)
//
// # Answers
//
// A descriptor finds its rule level by level; see [Descriptor]. Of the limits of a request either all are taken or, if
// one rejects, none: a rejected request costs nothing. Looking with hits_addend 0 is refused when nothing is left. What
// is given back with is_negative_hits stays given back, whatever the other limits say. A [Window] is counted as
// envoyproxy/ratelimit counts instead.
//
// Limits in this process are asked first, and the limits of stores after them, all at once. If a limit in this process
// rejects, limits of stores that would take nothing from a rejected request are only looked at.
//
// A status has what is left, and the time until all is back or, if the limit rejects, until it is worth asking again. A
// rejection has a retry-after of its own, in whole seconds.
//
// The service never answers a well-formed request with a gRPC error: Envoy takes an error for a service that is away, and lets
// the request pass, uncounted. While a store is away, the outage policy of the limiter decides at once; then
// [Limit.FailOpen] and [ServiceOptions.CountersFailOpen] do. A limiter that panics could not decide, either, and the panic is
// logged. If the caller goes away, what was taken stays taken, because Envoy can have let the request pass after its timeout.
//
// # Limits of requests
//
// A descriptor can bring a limit of its own, with a domain that has rules. It is counted by [ServiceOptions.Counters], under
// the key of the descriptor, and the rules do not apply, unless its unit is unknown or its time is more than a year. The
// protocol's enum ends with the year; the number after that stands for a week.
//
// # Map of the code
//
// For maintainers, in reading order:
//
//   - rules.go: what a program configures. prepare.go checks it, and makes it ready for requests; limit.go has what
//     limiters can do.
//   - service.go: the service. decision.go is one request; its methods follow each other.
//   - match.go: the rule of a descriptor. key.go: the key of its counter.
//   - ask.go: how limits are asked, and what counts as no decision. exact.go: limiters. count.go: windows.
//   - status.go, headers.go, metadata.go: the answer.
//   - events.go: what the Listener is told. names.go bounds the names with values in them.
//   - counters.go, countertable.go: counters in this process. shared.go: those of a store.
package weirrls
