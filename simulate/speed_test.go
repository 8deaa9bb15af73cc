package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/stopwatch"
)

// busy is a pipeline of three strategies under more load than the bucket lets through: tens of thousands of requests wait
// to be tried again.
func busy(length time.Duration) Scenario { return threeStrategies(length, 95) }

// threeStrategies is a pipeline of three strategies under a load of 1,000 requests a second, of which the bucket lets ten
// times as many through as it gets tokens.
func threeStrategies(length time.Duration, tokens int) Scenario {
	return Scenario{
		Config: config(fmt.Sprintf(`{pipelines: {p: {strategies: [
			{retry: {max_retries: 2, delay: 100ms, jitter: true}},
			{rate_limiter: {token_bucket: {token_limit: 1000, tokens_per_period: %d, replenishment_period: 100ms, queue_limit: 300}}},
			{timeout: {timeout: 1s}}]}}}`, tokens)),
		Load:    Load{For: length, Open: &Open{Rate: ConstantRate{1000}, Poisson: true}, Keys: ZipfKeys{Count: 1000, Exponent: 1}},
		Service: Service{Latency: Exponential{20 * time.Millisecond}, FailureRate: 0.01},
		Seed:    1,
	}
}

// BenchmarkRun simulates a minute of 1,000 requests a second.
func BenchmarkRun(b *testing.B) {
	b.ReportAllocs()
	span := time.Minute
	if testing.Short() {
		span = time.Second
	}
	offered := int64(0)
	for b.Loop() {
		r, err := Run(b.Context(), busy(span))
		require.NoError(b, err)
		offered += r.Total.Offered
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(offered), "ns/execution")
}

// A sampler has the size of the live heap each time that a number of calls has been served.
type sampler struct {
	every, calls int
	live         []uint64
}

func (s *sampler) Duration(r *rand.Rand) time.Duration {
	if s.calls++; s.calls%s.every == 0 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.live = append(s.live, m.HeapAlloc)
	}
	return Exponential{20 * time.Millisecond}.Duration(r)
}

// What a run keeps is of the requests in flight, the intervals and the keys; of each request that has ended, it is a bit.
func TestRun_Memory(t *testing.T) {
	s := busy(time.Minute)
	s.Load.Open.Rate = ConstantRate{900} // the bucket lets it through, so that no more and more requests wait
	s.Interval = s.Load.For
	service := &sampler{every: 5_000}
	s.Service.Latency = service
	_, err := Run(t.Context(), s)
	require.NoError(t, err)
	live := service.live
	require.Greater(t, len(live), 8)
	assert.Less(t, live[len(live)-1], live[2]+1<<18, "bytes: %v", live)
}

// Ten minutes of 1,000 requests a second take at most ten seconds.
func TestRun_Speed(t *testing.T) {
	stopwatch.Only(t)
	best := time.Duration(math.MaxInt64)
	for range 3 {
		began := time.Now()
		_, err := Run(t.Context(), threeStrategies(10*time.Minute, 110))
		require.NoError(t, err)
		best = min(best, time.Since(began))
	}
	assert.Less(t, best, 10*time.Second)
}
