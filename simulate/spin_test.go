package simulate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const spinning = `{retry: {max_retries: forever, delay: off, ignore_retry_after: true}}`

// A request that is tried again at once, any number of times, ends the simulation with an error that says so: the time that
// would end its retries does not come, because the clock stands still.
func TestRun_RetriesWithoutDelay(t *testing.T) {
	const limited = `{rate_limiter: {token_bucket: {token_limit: 1, tokens_per_period: 1, replenishment_period: 100ms}}}`
	for name, s := range map[string]Scenario{
		"pipeline": {Config: config(`{pipelines: {p: {strategies: [` + spinning + `, ` + limited + `]}}}`)},
		"hedge":    {Config: config(`{pipelines: {p: {strategies: [{hedging: {at_once: true}}, ` + spinning + `, ` + limited + `]}}}`)},
		"client": {
			Config:  config(`{pipelines: {p: {strategies: [` + limited + `]}}}`),
			Clients: Clients{OnRejection: Reaction{MaxRetries: 1 << 30}},
		},
		"service": {
			Config:  config(`{pipelines: {p: {strategies: [` + spinning + `]}}}`),
			Service: Service{FailureRate: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.Load = Load{For: time.Second, Open: &Open{Rate: Bursts{Size: 3, First: 500 * ms}}}
			_, err := Run(t.Context(), s)
			assert.ErrorContains(t, err, "a request is tried again without an end 500.00")
		})
	}
}

// A request may pass more gates than that as long as the time goes on.
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
