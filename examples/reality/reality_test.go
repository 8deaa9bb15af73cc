// Package reality runs configurations as programs do, in a testing/synctest bubble, and in package simulate, under the same
// load: the counts must be the same, or one off. It has only tests.
package reality

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quickstart is what examples/quickstart builds.
const quickstart = `pipelines:
  service:
    strategies:
      - retry: {max_retries: 1000000, delay: "off"}
      - rate_limiter: {token_bucket: {token_limit: 3, tokens_per_period: 1, replenishment_period: 250ms, queue_limit: 2}}
      - timeout: {timeout: 1s}
`

// limits are those of examples/http: slots for all requests, and a bucket for each user.
const limits = `pipelines:
  orders:
    strategies:
      - rate_limiter: {name: slots, concurrency: {permit_limit: 4, queue_limit: 100}}
      - rate_limiter:
          partitioned: {key: client_ip, each: {token_bucket: {token_limit: 6, tokens_per_period: 6, replenishment_period: 1s}}}
`

// documented returns the first example of docs/configuration.md, with a limiters section.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	for block := range strings.SplitSeq(string(text), "```yaml\n") {
		if file, _, ok := strings.Cut(block, "```"); ok && strings.Contains(file, "\nlimiters:") {
			return file
		}
	}
	t.Fatal("docs/configuration.md has no file with limiters")
	return ""
}

// counts are what is compared.
type counts struct{ requests, calls, succeeded, rejected int64 }

// A load is evenly spaced requests of several keys.
type load struct {
	rate   float64
	length time.Duration
	burst  int // at the beginning
	keys   int
}

func TestRun_Reality(t *testing.T) {
	file := documented(t)
	for _, c := range []struct {
		name, file, pipeline string
		load                 load
		latency              time.Duration
	}{
		{"quickstart", quickstart, "service", load{burst: 10, rate: 1e-9, length: time.Second, keys: 1}, 10 * time.Millisecond},
		{"http", limits, "orders", load{rate: 150, length: 2800 * time.Millisecond, keys: 10}, 20 * time.Millisecond},
		{"orders", file, "orders", load{rate: 300, length: 2 * time.Second, keys: 1}, 5 * time.Millisecond},
		{"reports", file, "reports", load{rate: 130, length: 3 * time.Second, keys: 1}, 50 * time.Millisecond},
		{"public", file, "public", load{rate: 150, length: 2800 * time.Millisecond, keys: 3}, 5 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulated := c.load.simulate(t, c.file, c.pipeline, c.latency)
			var real counts
			synctest.Test(t, func(t *testing.T) { real = c.load.run(t, c.file, c.pipeline, c.latency) })
			t.Logf("simulated %+v, real %+v", simulated, real)
			assert.Equal(t, simulated.requests, real.requests)
			for what, n := range map[string][2]int64{
				"calls":     {simulated.calls, real.calls},
				"succeeded": {simulated.succeeded, real.succeeded},
				"rejected":  {simulated.rejected, real.rejected},
			} {
				assert.InDelta(t, n[0], n[1], 1, what) // what falls on one instant can come in another order
			}
		})
	}
}

// simulate runs the load in virtual time.
func (l load) simulate(t *testing.T, file, pipeline string, latency time.Duration) counts {
	t.Helper()
	rate := simulate.Sum{simulate.ConstantRate{Rate: l.rate}}
	if l.burst > 0 {
		rate = append(rate, simulate.Bursts{Size: l.burst})
	}
	r, err := simulate.Run(t.Context(), simulate.Scenario{
		Config: simulate.File("weir.yaml", []byte(file), func(_ *simulate.Setup, k *reload.Kinds) {
			k.RegisterKey("client_ip", simulate.Key)
		}),
		Pipeline: pipeline,
		Load:     simulate.Load{For: l.length, Open: &simulate.Open{Rate: rate}, Keys: simulate.UniformKeys{Count: l.keys}},
		Service:  simulate.Service{Latency: simulate.Fixed{Time: latency}},
	})
	require.NoError(t, err)
	require.Empty(t, r.Assumed)
	return counts{r.Total.Requests, r.Total.Calls, r.Total.Succeeded, r.Total.Rejected}
}

type keyKey struct{}

// run runs the load with a goroutine for each request.
func (l load) run(t *testing.T, file, name string, latency time.Duration) counts {
	t.Helper()
	k := reload.NewKinds()
	k.RegisterKey("client_ip", func(ctx context.Context) string { return ctx.Value(keyKey{}).(string) })
	f, err := reload.Parse("weir.yaml", []byte(file), k)
	require.NoError(t, err)
	reg := registry.New(nil)
	defer func() { assert.NoError(t, reg.Close(context.Background())) }()
	require.NoError(t, reg.Apply(t.Context(), f.Change(nil)))
	p, err := reg.Get(name)
	require.NoError(t, err)

	var requests, calls, succeeded, rejected atomic.Int64
	var all sync.WaitGroup
	request := func() {
		n := requests.Add(1)
		all.Go(func() {
			ctx := context.WithValue(t.Context(), keyKey{}, string(rune('a'+n%int64(l.keys))))
			err := p.Execute(ctx, func(context.Context) error {
				calls.Add(1)
				time.Sleep(latency)
				return nil
			})
			switch {
			case err == nil:
				succeeded.Add(1)
			case errors.Is(err, pipeline.ErrRejected):
				rejected.Add(1)
			}
		})
	}
	for range l.burst {
		request()
	}
	for n, began := 0.0, time.Now(); ; n++ {
		at := time.Duration(n / l.rate * 1e9)
		if n/l.rate >= l.length.Seconds() {
			break
		}
		time.Sleep(at - time.Since(began))
		request()
	}
	all.Wait()
	return counts{requests.Load(), calls.Load(), succeeded.Load(), rejected.Load()}
}
