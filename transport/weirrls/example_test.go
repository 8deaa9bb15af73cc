package weirrls_test

import (
	"context"
	"fmt"
	"net"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
	"github.com/weir-go/weir/transport/weirrls"
)

// serve serves a service on a connection in memory, and returns a client that asks about descriptors of the domain edge.
func serve(service *weirrls.Service) (ask func(...*common.RateLimitDescriptor) *ratelimitv3.RateLimitResponse, stop func()) {
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(server, service)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	conn := weir.Must(grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })))
	client := ratelimitv3.NewRateLimitServiceClient(conn)
	ask = func(descriptors ...*common.RateLimitDescriptor) *ratelimitv3.RateLimitResponse {
		return weir.Must(client.ShouldRateLimit(context.Background(), &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors}))
	}
	return ask, func() {
		_ = conn.Close()
		server.Stop()
		<-served
	}
}

// entry returns a descriptor of one entry.
func entry(key, value string) *common.RateLimitDescriptor {
	return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

func Example() {
	perClient := weir.Must(weirrls.PerKey(limiter.FactoryFor[string](limiter.SlidingWindowOptions{
		PermitLimit: 2, Window: time.Hour, SegmentsPerWindow: 6,
	}), nil))
	defer func() { _ = perClient.Close() }()
	reports := weir.Must(limiter.NewTokenBucket(limiter.PerMinute(1, 1)))
	defer func() { _ = reports.Close() }()
	rules := weir.Must(weirrls.NewRules(weirrls.Domain{
		Name: "edge",
		Descriptors: []weirrls.Descriptor{
			{Key: "remote_address", Limit: &weirrls.Limit{Partitioned: perClient}},
			{Key: "path", Value: "/reports/*", Limit: &weirrls.Limit{Name: "reports", Limiter: reports}},
		},
	}))
	ask, stop := serve(weir.Must(weirrls.NewService(rules, nil)))
	defer stop()

	for _, path := range []string{"/reports/1", "/reports/2", "/orders"} {
		r := ask(entry("remote_address", "192.0.2.1"), entry("path", path))
		fmt.Println(path, r.OverallCode, "left of the client's:", r.Statuses[0].LimitRemaining)
		for _, h := range r.ResponseHeadersToAdd {
			fmt.Println(" ", h.Key+":", h.Value)
		}
	}
	// Output:
	// /reports/1 OK left of the client's: 1
	// /reports/2 OVER_LIMIT left of the client's: 1
	//   retry-after: 60
	// /orders OK left of the client's: 0
}

// A Window is counted as envoyproxy/ratelimit counts: a rejected request counts, and looking passes when nothing is left.
func ExampleWindow() {
	rules := weir.Must(weirrls.NewRules(weirrls.Domain{
		Name: "edge",
		Descriptors: []weirrls.Descriptor{
			{Key: "tenant", Limit: &weirrls.Limit{Window: &weirrls.Window{RequestsPerUnit: 2, Unit: weirrls.Year}}},
		},
	}))
	ask, stop := serve(weir.Must(weirrls.NewService(rules, nil)))
	defer stop()

	for _, hits := range []uint64{2, 0, 1, 0} {
		d := entry("tenant", "a")
		d.HitsAddend = wrapperspb.UInt64(hits)
		fmt.Println(hits, ask(d).OverallCode)
	}
	// Output:
	// 2 OK
	// 0 OK
	// 1 OVER_LIMIT
	// 0 OVER_LIMIT
}

// Several servers with the same store count together.
func ExampleNewSharedCounters() {
	shared := weir.Must(store.New(storetest.NewMemory(), nil)) // a program has weirredis.New or weirpostgres.New here
	defer func() { _ = shared.Close() }()
	rules := weir.Must(weirrls.NewRules(weirrls.Domain{
		Name: "edge",
		Descriptors: []weirrls.Descriptor{
			{Key: "tenant", Limit: &weirrls.Limit{Window: &weirrls.Window{RequestsPerUnit: 3, Unit: weirrls.Year}}},
		},
	}))
	for range 2 {
		counters := weir.Must(weirrls.NewSharedCounters(shared, nil))
		ask, stop := serve(weir.Must(weirrls.NewService(rules, &weirrls.ServiceOptions{Counters: counters})))
		fmt.Println(ask(entry("tenant", "a")).Statuses[0].LimitRemaining)
		stop()
	}
	// Output:
	// 2
	// 1
}

// One request of a client at a time. The slots are permits of a sliding window that is longer than requests take.
func ExampleLimit_slots() {
	slots := weir.Must(weirrls.PerKey(limiter.FactoryFor[string](limiter.SlidingWindowOptions{
		PermitLimit: 1, Window: 5 * time.Minute, SegmentsPerWindow: 10,
	}), nil))
	defer func() { _ = slots.Close() }()
	rules := weir.Must(weirrls.NewRules(weirrls.Domain{
		Name:        "edge",
		Descriptors: []weirrls.Descriptor{{Key: "client", Limit: &weirrls.Limit{Partitioned: slots, OnOverrun: weirrls.OverrunDebt}}},
	}))
	ask, stop := serve(weir.Must(weirrls.NewService(rules, nil)))
	defer stop()

	begin, end := entry("client", "a"), entry("client", "a")
	end.HitsAddend, end.IsNegativeHits = wrapperspb.UInt64(1), true
	fmt.Println("a request begins:", ask(begin).OverallCode)
	fmt.Println("another one:", ask(begin).OverallCode)
	ask(end) // of the rejected request
	ask(end) // of the first one
	fmt.Println("after both have ended:", ask(begin).OverallCode)
	// Output:
	// a request begins: OK
	// another one: OVER_LIMIT
	// after both have ended: OK
}

// A limit that is charged when a stream has ended, such as with the tokens of a language model, asks with hits_addend 0
// first, and goes into debt.
func ExampleOverrun() {
	tokens := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: 1000, TokensPerPeriod: 1000, ReplenishmentPeriod: time.Hour,
	}))
	defer func() { _ = tokens.Close() }()
	rules := weir.Must(weirrls.NewRules(weirrls.Domain{
		Name:        "edge",
		Descriptors: []weirrls.Descriptor{{Key: "model", Limit: &weirrls.Limit{Limiter: tokens, OnOverrun: weirrls.OverrunDebt}}},
	}))
	ask, stop := serve(weir.Must(weirrls.NewService(rules, nil)))
	defer stop()

	look, report := entry("model", "large"), entry("model", "large")
	look.HitsAddend, report.HitsAddend = wrapperspb.UInt64(0), wrapperspb.UInt64(1500)
	fmt.Println("a request begins:", ask(look).OverallCode)
	ask(report)
	fmt.Println("after its report:", ask(look).OverallCode, "for", ask(look).Statuses[0].DurationUntilReset.AsDuration().Round(time.Hour))
	// Output:
	// a request begins: OK
	// after its report: OVER_LIMIT for 1h0m0s
}
