package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRun_RetriesWithoutDelay runs what would never end if the time did not go on: a retry, and a client, that try again
// at once, any number of times.
func TestRun_RetriesWithoutDelay(t *testing.T) {
	const limited = `{rate_limiter: {token_bucket: {token_limit: 1, tokens_per_period: 1, replenishment_period: 100ms}}}`
	for name, s := range map[string]Scenario{
		"pipeline": {Config: config(`{pipelines: {p: {strategies: [{retry: {max_retries: forever, delay: off, ignore_retry_after: true}}, ` + limited + `]}}}`)},
		"client": {
			Config:  config(`{pipelines: {p: {strategies: [` + limited + `]}}}`),
			Clients: Clients{OnRejection: Reaction{MaxRetries: 1 << 30}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.Load = Load{For: time.Second, Open: &Open{Rate: Bursts{Size: 3, Every: time.Second}}}
			r, err := Run(t.Context(), s)
			require.NoError(t, err)
			require.EqualValues(t, 3, r.Total.Satisfied)
			require.InDelta(t, 200*time.Millisecond, r.Latency.Max, float64(200*time.Millisecond))
			require.GreaterOrEqual(t, r.Ended, 200*time.Millisecond)
			require.Less(t, r.Ended, 210*time.Millisecond)
		})
	}
}

// TestRun_RetriesThatNeverEnd runs a request whose retries only the cut of the load ends, a minute later.
func TestRun_RetriesThatNeverEnd(t *testing.T) {
	r, err := Run(t.Context(), Scenario{
		Load: constant(20, 100*time.Millisecond),
		Config: config(`{pipelines: {p: {strategies: [{retry: {max_retries: forever, delay: off, ignore_retry_after: true}},
			{rate_limiter: {fixed_window: {permit_limit: 1, window: 87600h}}}]}}}`),
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Total.Unfinished)
	require.EqualValues(t, 1, r.Total.Satisfied)
}

// TestRun_LongSpins runs a request whose retries only the cut ends when its rests have become long.
func TestRun_LongSpins(t *testing.T) {
	r, err := Run(t.Context(), Scenario{
		Load: Load{For: 20 * time.Hour, Open: &Open{Rate: Bursts{Size: 2}}},
		Config: config(`{pipelines: {p: {strategies: [{retry: {max_retries: forever, delay: off, ignore_retry_after: true}},
			{rate_limiter: {fixed_window: {permit_limit: 1, window: 87600h}}}]}}}`),
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Total.Unfinished)
}

// TestRun_LongRetries runs a request that is tried again so often, every 100 ms, that it passes more gates than a task may at
// one instant. It needs no rests.
func TestRun_LongRetries(t *testing.T) {
	r, err := Run(t.Context(), Scenario{
		Load: Load{For: 2 * time.Hour, Open: &Open{Rate: Bursts{Size: 2}}},
		Config: config(`{pipelines: {p: {strategies: [{retry: {max_retries: forever, delay: 100ms, ignore_retry_after: true}},
			{rate_limiter: {fixed_window: {permit_limit: 1, window: 7000050ms}}}]}}}`),
	})
	require.NoError(t, err)
	require.EqualValues(t, 2, r.Total.Satisfied)
	require.InDelta(t, 7000050*time.Millisecond, r.Latency.Max, float64(150*time.Millisecond))
}
