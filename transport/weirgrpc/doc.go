// Package weirgrpc brings limiters and pipelines to gRPC: interceptors for servers and for clients.
//
//	perUser, err := weirgrpc.PerKey(limiter.FactoryFor[string](limiter.TokenBucketOptions{…}), nil)
//	…
//	limits, err := weirgrpc.NewLimits(&weirgrpc.LimitsOptions{
//		Global: weirgrpc.Policy{Limit: weirgrpc.Of(slots)}, // asked first
//		Policies: map[string]weirgrpc.Policy{
//			"per-user": {Limit: weirgrpc.ByKey(perUser, weirgrpc.Metadata("x-user"))},
//			"reports":  {Limit: weirgrpc.Of(reports), Timeout: time.Minute},
//		},
//		Methods: map[string][]string{
//			"/shop.Orders/*":        {"per-user"},
//			"/shop.Reports/Monthly": {"per-user", "reports"},
//		},
//		Exempt: []string{"/grpc.health.v1.Health/*"},
//	})
//	…
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limits.UnaryInterceptor()),
//		grpc.ChainStreamInterceptor(limits.StreamInterceptor()))
//
// The policies of a method are asked in order. A call that a later policy rejects costs nothing in the earlier ones. The
// handler finds the leases of its call with [LeaseFrom], and corrects what the call cost with [Charge]. [Policy.Streams]
// says whether a policy limits how streams begin, how many there are, or their messages.
//
// # Rejections
//
// A rejected call gets RESOURCE_EXHAUSTED if the client is over its quota, and UNAVAILABLE if the server is short of
// capacity. If the time to wait is known, the response has it twice: in the trailer grpc-retry-pushback-ms, which grpc-go's
// own retry honours, and in the google.rpc.RetryInfo of the status, which exporters of OpenTelemetry and many client
// libraries honour. A client of grpc-go retries RESOURCE_EXHAUSTED only if its service config has that code among the
// retryableStatusCodes.
//
// The response has no header, because grpc-go does not retry a response with one. If an interceptor outside the limits
// sets header metadata, install the limits outside it, or send the metadata as a trailer. A server behind net/http, see
// [grpc.Server.ServeHTTP], always sends a header.
//
// # Pipelines
//
// [ByPipeline] makes the limit of a policy of a pipeline, with timeouts, concurrency limits and circuit breakers that see the
// errors of the handler. A pipeline that a registry reloads applies to the next call.
//
// # Clients
//
// [NewClient] makes the interceptors of a client, which send its calls through a pipeline:
//
//	p, err := pipeline.New("users-api",
//		retry.New(nil),
//		ratelimit.New(bucket, nil),
//		timeout.New(5*time.Second, nil))
//	…
//	client, err := weirgrpc.NewClient(p, nil)
//	…
//	conn, err := grpc.NewClient(target, append(client.DialOptions(), credentials)...)
//
// A call is made again only if its method is idempotent or the server has certainly not processed it. The retry waits as
// long as the server asks in either form.
package weirgrpc

// For maintainers: files that begin with server are the interceptors of a server, files that begin with client are
// those of a client, and files that begin with keys find the key of a call. What a server has in common with package
// weirhttp is in transport/internal/admission. Read these first, in this order:
//
//   - serverpolicy.go: what a policy is.
//   - servercall.go: the way of a call through its policies to the handler.
//   - serverstream.go: the messages of a stream.
//   - serverthrough.go: a handler that runs inside a pipeline.
//   - clientcall.go: a call of the client, and its way through the pipeline; clientstream.go: that of a stream.
