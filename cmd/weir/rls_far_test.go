package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/tools/testserver"
)

// A Redis that answers after 8 ms decides within Envoy's 20 ms. On a machine that is too busy for that, fail_open decides,
// and what it admits counts: until Redis rejects, no more than the limit is granted, and what is under way.
func TestRLS_FarRedis(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewProxy(t, testserver.NewRedis(t).Addr())
	proxy.Delay(4 * time.Millisecond) // in each direction
	for _, mode := range []string{"exact", "envoy"} {
		t.Run(mode, func(t *testing.T) {
			p := startRLS(t, fmt.Sprintf(`
rls:
  stores: {shared: {redis: "redis://%s", prefix: far-%s}}
  counters: {store: shared, outage: fail_open}
  mode: %s
  domains: [{domain: edge, descriptors: [{key: all, rate_limit: {requests_per_unit: 1000, unit: hour}}]}]
`, proxy.Addr(), mode, mode))
			client := ratelimitv3.NewRateLimitServiceClient(p.envoy().conn)
			var granted, grantedBefore, rejected, late, running, most atomic.Int64
			var all sync.WaitGroup
			tick := time.NewTicker(time.Second / 300)
			defer tick.Stop()
			for range 1500 {
				most.Store(max(most.Load(), running.Add(1)))
				all.Go(func() {
					defer running.Add(-1)
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer cancel()
					switch answer, err := client.ShouldRateLimit(ctx, requestOf("edge", "all=1")); {
					case err != nil:
						late.Add(1)
					case answer.GetOverallCode() != okay:
						rejected.Add(1)
					case rejected.Load() == 0:
						grantedBefore.Add(1)
						fallthrough
					default:
						granted.Add(1)
					}
				})
				<-tick.C
			}
			all.Wait()
			t.Logf("%d granted, %d of them before a rejection; %d rejected; %d late", granted.Load(), grantedBefore.Load(), rejected.Load(), late.Load())
			assert.LessOrEqual(t, grantedBefore.Load(), 1000+most.Load())
		})
	}
}
