package simulate

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
)

// asProcess is set in the processes of TestRun_RepeatsItselfInAnotherProcess.
const asProcess = "WEIR_SIMULATE_PROCESS"

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
		Config: func(s *Setup) (registry.Change, error) {
			k := reload.NewKinds()
			k.RegisterKey("key", Key)
			k.RegisterStore("shared", s.Store("shared"))
			f, err := reload.Parse("everything.yaml", []byte(file), k)
			if err != nil {
				return registry.Change{}, err
			}
			return f.Change(nil), nil
		},
		Instances: 2,
		Load:      Load{For: 5 * time.Second, Keys: many(200), Open: &Open{Poisson: true, Rate: ConstantRate{Rate: 300}}},
		Service:   Service{Latency: exp(20 * time.Millisecond), Capacity: 10, FailureRate: 0.25},
		Clients:   Clients{Timeout: time.Second},
	}
}

// processSeeds returns how many random scenarios each process runs.
func processSeeds() int {
	if testing.Short() {
		return 2
	}
	return 8
}

// TestRun_RepeatsItselfInAnotherProcess compares results of two processes, one of which has one processor: where the
// clock begins, and the seeds of hashes and maps, differ between processes only.
func TestRun_RepeatsItselfInAnotherProcess(t *testing.T) {
	if os.Getenv(asProcess) != "" {
		for seed := range processSeeds() {
			s, _ := randomScenario(uint64(seed))
			printHash(t, fmt.Sprint("random ", seed), s)
		}
		printHash(t, "everything", everything())
		return
	}
	var outputs []string
	for _, processors := range []string{"1", "4"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", fmt.Sprint("-test.short=", testing.Short()))
		cmd.Env = append(os.Environ(), asProcess+"=1", "GOMAXPROCS="+processors)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		var hashes []string
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "hash ") {
				hashes = append(hashes, line)
			}
		}
		require.Len(t, hashes, processSeeds()+1, string(out))
		outputs = append(outputs, strings.Join(hashes, ""))
	}
	assert.Equal(t, outputs[0], outputs[1])
}

// printHash runs s and prints a hash of its result.
func printHash(t *testing.T, name string, s Scenario) {
	t.Helper()
	r, err := Run(t.Context(), s)
	require.NoError(t, err, name)
	require.NotZero(t, r.Total.Requests, name)
	data, err := json.Marshal(r)
	require.NoError(t, err)
	fmt.Printf("hash %s: %x\n", name, sha256.Sum256(data))
}
