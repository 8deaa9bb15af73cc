package simulate

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

type exp time.Duration

func (e exp) Duration(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(e)) }
func (e exp) Validate() error                     { return nil }

// config returns a Config of a file.
func config(text string) Config {
	return func(*Setup) (registry.Change, error) {
		k := reload.NewKinds()
		k.RegisterKey("key", Key)
		k.RegisterPermits("cost", Cost)
		f, err := reload.Parse("test.yaml", []byte(text), k)
		if err != nil {
			return registry.Change{}, err
		}
		return f.Change(nil), nil
	}
}

// hashOf returns a hash of the JSON of a result.
func hashOf(t *testing.T, r *Result) string {
	text, err := json.Marshal(r)
	require.NoError(t, err)
	if dir := os.Getenv("RESULTS"); dir != "" {
		text, _ := json.MarshalIndent(r, "", " ")
		os.WriteFile(fmt.Sprintf("%s/%x", dir, sha256.Sum256(text))[:len(dir)+9], text, 0o644)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:8]
}

func TestRun_Same(t *testing.T) {
	for name, s := range map[string]Scenario{
		"bucket with retries": {Config: config(`{pipelines: {p: {strategies: [
			{retry: {max_retries: 2, delay: 100ms, jitter: true}},
			{rate_limiter: {token_bucket: {token_limit: 1000, tokens_per_period: 95, replenishment_period: 100ms, queue_limit: 300}}},
			{timeout: {timeout: 1s}}]}}}`),
			Service: Service{Latency: exp(20 * time.Millisecond), FailureRate: 0.01}},
		"concurrency, hedging, breaker": {Config: config(`{pipelines: {p: {strategies: [
			{timeout: {timeout: 1s, name: whole}},
			{retry: {max_retries: 3, delay: 100ms, jitter: true}},
			{circuit_breaker: {failure_ratio: 0.3, break_duration: 1s}},
			{hedging: {delay: 50ms, max_hedges: 2}},
			{rate_limiter: {concurrency: {permit_limit: 40, queue_limit: 300}}},
			{timeout: {timeout: 300ms}}]}}}`),
			Clients: Clients{Timeout: 2 * time.Second, OnRejection: Reaction{MaxRetries: 3, Delay: time.Second, Jitter: true}},
			Service: Service{Latency: exp(30 * time.Millisecond), FailureRate: 0.01, Capacity: 50, Periods: []Period{{From: 5 * time.Second, To: 8 * time.Second, FailureRate: 0.9}}}},
		"at once": {Config: config(`{pipelines: {p: {strategies: [
			{hedging: {at_once: true, max_hedges: 2}},
			{rate_limiter: {token_bucket: {token_limit: 10, tokens_per_period: 100, replenishment_period: 100ms, queue_limit: 300, queue_order: newest_first}}},
			{rate_limiter: {name: second, sliding_window: {permit_limit: 900, window: 1s, segments_per_window: 10, queue_limit: 10}}}]}}}`),
			Service: Service{Latency: exp(30 * time.Millisecond), FailureRate: 0.01, Capacity: 50}},
		"chain": {Config: config(`{limiters: {a: {token_bucket: {token_limit: 10, tokens_per_period: 100, replenishment_period: 100ms, queue_limit: 300}},
			b: {fixed_window: {permit_limit: 80, window: 100ms, queue_limit: 20}}, ab: {chain: [a, b]}}, pipelines: {p: {strategies: [
			{rate_limiter: {limiter: ab}}]}}}`),
			Clients: Clients{Timeout: 200 * time.Millisecond},
			Service: Service{Latency: exp(30 * time.Millisecond)}},
		"keys": {Config: config(`{limiters: {a: {partitioned: {key: key, max_partitions: 100, each: {fixed_window: {permit_limit: 3, window: 1s, queue_limit: 2}}}}}, pipelines: {p: {strategies: [
			{timeout: {timeout: 500ms}}, {rate_limiter: {limiter: a}}]}}}`),
			Load:    Load{Keys: many(300)},
			Clients: Clients{OnRejection: Reaction{MaxRetries: 3, RetryAfter: true}},
			Service: Service{Latency: exp(30 * time.Millisecond)}},
		"closed": {Config: config(`{pipelines: {p: {strategies: [
			{rate_limiter: {concurrency: {permit_limit: 10, queue_limit: 30}}}]}}}`),
			Load:    Load{Closed: &Closed{Clients: 100, Think: exp(50 * time.Millisecond)}},
			Service: Service{Latency: exp(30 * time.Millisecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Load.For = 20 * time.Second
			if s.Load.Closed == nil {
				s.Load.Open = &Open{Poisson: true, Rate: ConstantRate{1000}}
			}
			first := ""
			for i := range 5 {
				result, err := Run(t.Context(), s)
				require.NoError(t, err)
				if i == 0 {
					fmt.Printf("%+v\n", result.Total)
				}
				if hash := hashOf(t, result); first == "" {
					first = hash
				} else if hash != first {
					t.Error("differs", i)
				}
			}
		})
	}
}

type many int

func (m many) Key(r *rand.Rand) string { return fmt.Sprint(r.IntN(int(m))) }
func (m many) Validate() error         { return nil }
