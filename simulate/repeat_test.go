package simulate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/strategies/retry"
)

// asProcess is set in the other process of TestRun_RepeatsItself.
const asProcess = "WEIR_SIMULATE_PROCESS"

// TestRun_RepeatsItself runs random scenarios beside each other, and again in another process that has one processor: the
// results are the same, to the byte. Where the clock begins, and the seeds of hashes and maps, differ between processes only.
// WEIR_SIMULATE_SCENARIOS=N tries N scenarios.
func TestRun_RepeatsItself(t *testing.T) {
	n := 24
	if text := os.Getenv("WEIR_SIMULATE_SCENARIOS"); text != "" {
		n, _ = strconv.Atoi(text)
	} else if testing.Short() {
		n = 4
	}
	child := os.Getenv(asProcess) != ""
	hashes := make([]string, n)
	run := func(i int) {
		s, file := randomScenario(uint64(i))
		switch i {
		case 0:
			s, file = everything(), "everything"
		case 1:
			s, file = cutOff(), "cut off"
		}
		r, err := Run(t.Context(), s)
		if assert.NoError(t, err, file) {
			hashes[i] = fmt.Sprintln("hash", i, hashOf(t, r))
			checkCounts(t, r)
			assert.NotZero(t, r.Total.Requests, "the scenario has no load")
		}
	}
	var all sync.WaitGroup
	for first := range 2 {
		all.Go(func() {
			for i := first; i < n; i += 2 {
				run(i)
			}
		})
	}
	all.Wait()
	if child {
		fmt.Print(strings.Join(hashes, ""))
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", fmt.Sprint("-test.short=", testing.Short()))
	cmd.Env = append(os.Environ(), asProcess+"=1", "GOMAXPROCS=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	for i, hash := range hashes {
		_, file := randomScenario(uint64(i))
		assert.Contains(t, string(out), hash, "scenario %d: %s", i, file)
	}
}

// What attempts of hedges and queues do at one instant at a limiter in a store comes in the same order in each run.
func TestRun_RepeatsStores(t *testing.T) {
	closed := func(clients int) Load {
		return Load{For: 500 * time.Millisecond, Closed: &Closed{Clients: clients, Think: exp(5 * time.Millisecond)}}
	}
	for name, test := range map[string]struct {
		hedges, permits, queue int
		load                   Load
	}{
		"a queue asks when leases are released": {2, 6, 25, closed(29)},
		"the whole queue leaves":                {3, 1, 100, closed(2)},
		"several notices wake a queue":          {3, 3, 100, closed(2)},
		"many ask before a definition is known": {9, 100, 0, Load{
			For: 2 * time.Millisecond, Open: &Open{Poisson: true, Rate: ConstantRate{Rate: 100_000}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			file := fmt.Sprintf(`pipelines: {p: {strategies: [{hedging: {at_once: true, max_hedges: %d}},
  {rate_limiter: {concurrency: {permit_limit: %d, queue_limit: %d}, store: shared}}]}}`, test.hedges, test.permits, test.queue)
			s := Scenario{
				Config: File("leases.yaml", []byte(file), nil), Instances: 2, Seed: 7, Load: test.load,
				Service: Service{Latency: exp(2 * time.Millisecond), StopsCanceled: true, FailureRate: 0.1},
				Clients: Clients{Timeout: 30 * time.Millisecond},
			}
			hashes := make([]string, 8)
			var all sync.WaitGroup
			for first := range 2 {
				all.Go(func() {
					for i := first; i < len(hashes); i += 2 {
						if r, err := Run(t.Context(), s); assert.NoError(t, err) {
							hashes[i] = hashOf(t, r)
						}
					}
				})
			}
			all.Wait()
			assert.Len(t, slices.Compact(slices.Sorted(slices.Values(hashes))), 1)
		})
	}
}

// everything is a scenario with what depends on the process, if anything does: slots of the clock in a retry budget and a
// circuit breaker, a limiter that forgets keys by their hashes, and a store.
func everything() Scenario {
	const file = `
budgets: {calm: {ratio: 0.1, min_per_second: 1}}
pipelines:
  p:
    strategies:
      - rate_limiter: {name: keyed, partitioned: {key: key, max_partitions: 20, each: {token_bucket: {token_limit: 5, tokens_per_period: 1, replenishment_period: 50ms}}}}
      - rate_limiter: {name: stored, token_bucket: {token_limit: 100, tokens_per_period: 10, replenishment_period: 30ms}, store: shared}
      - retry: {max_retries: 3, delay: 20ms, jitter: true, budget: calm}
      - circuit_breaker: {failure_ratio: 0.3, minimum_throughput: 10, break_duration: 200ms}
`
	return Scenario{
		Config:    File("random.yaml", []byte(file), nil),
		Instances: 2,
		Load:      Load{For: 5 * time.Second, Keys: many(200), Open: &Open{Poisson: true, Rate: ConstantRate{Rate: 300}}},
		Service:   Service{Latency: exp(20 * time.Millisecond), Capacity: 10, FailureRate: 0.25},
		Clients:   Clients{Timeout: time.Second},
	}
}

// cutOff is a scenario that is cut off with work in flight, of which a part waits for the permit that another part gives back.
func cutOff() Scenario {
	const file = `
pipelines:
  p:
    strategies:
      - retry: {max_retries: 2, delay: 1ms, jitter: true}
      - rate_limiter: {concurrency: {permit_limit: 1, queue_limit: 3000, queue_order: newest_first}}
`
	return Scenario{
		Config:  File("cut.yaml", []byte(file), nil),
		Load:    Load{For: time.Second, Keys: many(200), Open: &Open{Rate: ConstantRate{Rate: 3000}}},
		Service: Service{Latency: Fixed{2 * time.Minute}},
	}
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
		Config:    File("random.yaml", []byte(file), nil),
		Instances: 1 + r.IntN(2),
		Seed:      seed,
		Load:      Load{For: 3 * time.Second, Keys: many(1 + r.IntN(200))},
		Service: Service{
			Latency: exp(time.Duration(r.IntN(50)) * time.Millisecond), Capacity: r.IntN(2) * (1 + r.IntN(20)), QueueLimit: r.IntN(3) * 10,
			FailureRate: 0.3 * r.Float64(), StopsCanceled: r.IntN(2) == 0,
			Periods: []Period{{From: time.Second, To: 1500 * time.Millisecond, FailureRate: new(1.0)}},
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
