package simulate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/retry"
)

// TestRun_RepeatsItself runs random scenarios twice, with one and with all processors: the results are the same, to the
// byte. WEIR_SIMULATE_SCENARIOS=N tries N of them.
func TestRun_RepeatsItself(t *testing.T) {
	n := 40
	if text := os.Getenv("WEIR_SIMULATE_SCENARIOS"); text != "" {
		n, _ = strconv.Atoi(text)
	} else if testing.Short() {
		n = 4
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s, text := randomScenario(uint64(seed))
			var results [2]string
			requests := int64(0)
			for i, processors := range []int{1, runtime.GOMAXPROCS(0)} {
				old := runtime.GOMAXPROCS(processors)
				r, err := Run(t.Context(), s)
				runtime.GOMAXPROCS(old)
				require.NoError(t, err, text)
				encoded, err := json.MarshalIndent(r, "", " ")
				require.NoError(t, err)
				results[i] = string(encoded)
				requests = r.Total.Requests
				checkCounts(t, r)
				if r.Total.Unfinished > 0 {
					t.Log("unfinished", r.Total.Unfinished, r.Ended)
				}
			}
			if results[0] != results[1] {
				t.Errorf("%s\n%s", text, firstDifference(results[0], results[1]))
			}
			require.NotZero(t, requests, "the scenario has no load")
		})
	}
}

// firstDifference returns the first lines that differ.
func firstDifference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return fmt.Sprintf("line %d: %s, then %s", i, as[i], bs[i])
		}
	}
	return "one is longer"
}

// randomScenario returns a scenario with all kinds of strategies and limiters.
func randomScenario(seed uint64) (s Scenario, file string) {
	r := rand.New(rand.NewPCG(seed, 7))
	pick := func(texts ...string) string { return texts[r.IntN(len(texts))] }
	limits := func() string {
		queue := fmt.Sprintf("queue_limit: %d, queue_order: %s", r.IntN(2)*r.IntN(50), pick("oldest_first", "newest_first"))
		return pick(
			fmt.Sprintf("token_bucket: {token_limit: %d, tokens_per_period: %d, replenishment_period: %dms, %s}", 50+r.IntN(50), 1+r.IntN(20), 1+r.IntN(100), queue),
			fmt.Sprintf("fixed_window: {permit_limit: %d, window: %dms, %s}", 50+r.IntN(100), 10+r.IntN(300), queue),
			fmt.Sprintf("sliding_window: {permit_limit: %d, window: %dms, segments_per_window: 10, %s}", 50+r.IntN(100), 10*(1+r.IntN(30)), queue),
			fmt.Sprintf("concurrency: {permit_limit: %d, %s}", 1+r.IntN(20), queue),
		)
	}
	limiter := func() string {
		switch l := limits(); r.IntN(7) {
		case 0:
			return fmt.Sprintf("partitioned: {key: key, max_partitions: %d, each: {%s}}", 10+r.IntN(100), l)
		case 1:
			return l + ", store: shared"
		case 2:
			return fmt.Sprintf("partitioned: {key: key, each: {%s}}, store: shared", l)
		case 3:
			return "adaptive: {min_window: 10ms, initial_limit: 5, queue_limit: 10}"
		case 4:
			return "throttler: {period: 1s}"
		default:
			return l
		}
	}
	var strategies []string
	for i := range 1 + r.IntN(4) {
		name := fmt.Sprintf("name: s%d", i)
		strategies = append(strategies, pick(
			fmt.Sprintf("{retry: {%s, max_retries: %d, delay: %dms, backoff: exponential, jitter: %v}}", name, 1+r.IntN(3), r.IntN(200)+1, r.IntN(2) == 0),
			fmt.Sprintf("{circuit_breaker: {%s, failure_ratio: 0.2, minimum_throughput: 10, break_duration: %dms}}", name, 1+r.IntN(1000)),
			fmt.Sprintf("{hedging: {%s, delay: %dms, max_hedges: %d}}", name, 1+r.IntN(50), 1+r.IntN(2)),
			fmt.Sprintf("{hedging: {%s, at_once: true, max_hedges: %d}}", name, 1+r.IntN(2)),
			fmt.Sprintf("{timeout: {%s, timeout: %dms}}", name, 10+r.IntN(500)),
			fmt.Sprintf("{chaos_latency: {%s, enabled: true, rate: 0.1, latency: %dms}}", name, 1+r.IntN(50)),
			fmt.Sprintf("{rate_limiter: {%s, %s}}", name, limiter()),
			fmt.Sprintf("{rate_limiter: {%s, %s}}", name, limiter()),
			fmt.Sprintf("{rate_limiter: {%s, chain: [named, other]}}", name),
		))
	}
	file = fmt.Sprintf("limiters: {named: {%s}, other: {%s}}\npipelines: {p: {strategies: [\n  %s]}}", limits(), limits(), strings.Join(strategies, ",\n  "))
	reaction := func() Reaction {
		return Reaction{
			MaxRetries: r.IntN(4), Delay: time.Duration(r.IntN(300)) * time.Millisecond, Jitter: r.IntN(2) == 0,
			Backoff: retry.Backoff(r.IntN(3)), RetryAfter: r.IntN(2) == 0,
		}
	}
	s = Scenario{
		Config: func(s *Setup) (registry.Change, error) {
			k := reload.NewKinds()
			k.RegisterKey("key", Key)
			k.RegisterStore("shared", s.Store("shared"))
			f, err := reload.Parse("random.yaml", []byte(file), k)
			if err != nil {
				return registry.Change{}, err
			}
			return f.Change(nil), nil
		},
		Instances: 1 + r.IntN(2),
		Seed:      seed,
		Load:      Load{For: 3 * time.Second, Keys: many(1 + r.IntN(200))},
		Service: Service{
			Latency: exp(time.Duration(r.IntN(50)) * time.Millisecond), Capacity: r.IntN(2) * (1 + r.IntN(20)), QueueLimit: r.IntN(3) * 10,
			FailureRate: 0.3 * r.Float64(), StopsCanceled: r.IntN(2) == 0,
			Periods: []Period{{From: time.Second, To: 1500 * time.Millisecond, FailureRate: 1}},
		},
		Clients: Clients{Timeout: time.Duration(r.IntN(2)*r.IntN(1000)) * time.Millisecond, OnRejection: reaction(), OnFailure: reaction()},
	}
	if r.IntN(3) == 0 {
		s.Load.Closed = &Closed{Clients: 1 + r.IntN(50), Think: exp(time.Duration(r.IntN(100)+1) * time.Millisecond)}
	} else {
		s.Load.Open = &Open{Poisson: r.IntN(2) == 0, Rate: ConstantRate{Rate: float64(100 + 100*r.IntN(5))}}
	}
	return s, file
}
