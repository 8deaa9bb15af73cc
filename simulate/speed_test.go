package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// busy is a pipeline of three strategies under more load than the bucket lets through.
func busy(length time.Duration) Scenario {
	return Scenario{
		Config: config(`{pipelines: {p: {strategies: [
			{retry: {max_retries: 2, delay: 100ms, jitter: true}},
			{rate_limiter: {token_bucket: {token_limit: 1000, tokens_per_period: 95, replenishment_period: 100ms, queue_limit: 300}}},
			{timeout: {timeout: 1s}}]}}}`),
		Load:    Load{For: length, Open: &Open{Rate: ConstantRate{1000}, Poisson: true}, Keys: ZipfKeys{Count: 1000, Exponent: 1}},
		Service: Service{Latency: Exponential{20 * time.Millisecond}, FailureRate: 0.01},
		Seed:    1,
	}
}

// BenchmarkRun simulates ten minutes of 1,000 requests a second, which should take at most ten seconds.
func BenchmarkRun(b *testing.B) {
	b.ReportAllocs()
	offered := int64(0)
	for b.Loop() {
		r, err := Run(b.Context(), busy(10*time.Minute))
		require.NoError(b, err)
		offered += r.Total.Offered
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(offered), "ns/execution")
}
