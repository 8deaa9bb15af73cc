// Package weirrls is the rate limit service that Envoy asks, envoy.service.ratelimit.v3.RateLimitService, over limiters
// of weir: in process, on Redis or on PostgreSQL. Istio, Contour, Envoy Gateway and other proxies that are made of Envoy
// ask it, too. The command weir rls is such a server, configured by a file; this package is for programs that serve the
// protocol themselves.
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
// one rejects, none: a rejected request costs nothing. Looking with hits_addend 0 is refused when nothing is left. A
// [Window] is counted as envoyproxy/ratelimit counts instead.
//
// The service never answers a well-formed request with a gRPC error: Envoy takes an error for a service that is away, and lets
// the request pass, uncounted. While a store is away, the outage policy of the limiter decides at once.
package weirrls
