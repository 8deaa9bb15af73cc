// Package weirrls implements Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService, with weir's limiters:
// in process, on Redis or on PostgreSQL. Istio and Contour use it, too. The command weir rls is such a server, configured by
// a file; this package is for programs that serve the protocol themselves.
//
//	perClient, err := weirrls.PerKey(limiter.FactoryFor[string](limiter.SlidingWindowOptions{…}), nil)
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
// Each descriptor of a request finds its rule level by level; see [Descriptor]. If all limits of a request admit it, it
// takes its hits from all of them. If one rejects it, it takes none: a rejected request costs nothing. A request that only
// looks, with hits_addend 0, is rejected when nothing is left. Hits that are given back with is_negative_hits stay given
// back, whatever the other limits say. A [Window] counts as envoyproxy/ratelimit counts instead.
//
// Limits in this process are asked first, then the limits of stores, all at the same time. If a limit in this process
// rejects the request, limits of stores from which a rejected request takes nothing are not asked: their descriptors are OK
// and have no current_limit.
//
// The status of a descriptor has what is left, and the time until all is back or, after a rejection, until it is worth
// asking again. A rejected request gets a retry-after header, in whole seconds.
//
// The service answers every well-formed request without a gRPC error, because Envoy takes an error for a service that is
// away, and lets the request pass. While a store is away, the outage policy of the limiter decides; if there is still no
// decision, [Limit.FailOpen] and [ServiceOptions.CountersFailOpen] do. They also decide if a limiter panics; the panic is
// logged. If the caller goes away, what was taken stays taken, because Envoy can have let the request pass after its timeout.
//
// # Limits of requests
//
// A descriptor can bring a limit with it, in a domain that has rules. Then the rules do not apply, and the hits are counted by
// [ServiceOptions.Counters], under the key of the descriptor. A limit with an unknown unit, or for more than a year, is
// ignored. The enum of the protocol ends with the year; the next number stands for a week.
//
// # Map of the code
//
// For maintainers, in reading order:
//
//   - rules.go: what a program configures. prepare.go checks it, and makes it ready for requests; limit.go asks a limiter.
//   - match.go: the rule of a descriptor, and the key of its counter.
//   - service.go, options.go: the service. decision.go is one request; its methods follow each other.
//   - exact.go: hits that are taken from a limiter. window.go: hits that are counted. call.go: the time that both have.
//   - answer.go, metadata.go: the answer. events.go: what the Listener gets.
//   - counters.go: counters in this process. shared.go: those of a store.
package weirrls
