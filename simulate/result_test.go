package simulate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/hedge"
)

// runFile simulates a file under a load of 10 requests a second for a minute.
func runFile(t *testing.T, file string, change func(*Scenario)) *Result {
	t.Helper()
	s := Scenario{
		Config: File("weir.yaml", []byte(file), nil),
		Load:   Load{For: time.Minute, Open: &Open{Rate: ConstantRate{Rate: 10}}},
	}
	change(&s)
	r, err := Run(t.Context(), s)
	require.NoError(t, err)
	return r
}

// Most counts what limiters grant: the cost of a request only if the limiter asks for it.
func TestResult_MostOfCosts(t *testing.T) {
	const limits = "limiters: {a: {token_bucket: {token_limit: 1000, tokens_per_period: 1000, replenishment_period: 1s}}}\n"
	for strategies, want := range map[string]int64{
		"{rate_limiter: {limiter: a}}":                                                       10,
		"{rate_limiter: {limiter: a, permits: cost}}":                                        70,
		"{rate_limiter: {limiter: a, permits: cost}}, {rate_limiter: {name: b, limiter: a}}": 70,
		"{timeout: {timeout: 1s}}":                                                           10,
	} {
		r := runFile(t, limits+"pipelines: {p: {strategies: ["+strategies+"]}}", func(s *Scenario) {
			s.Load.Cost = FixedCost{Permits: 7}
			s.Service.Latency = Fixed{Time: time.Millisecond}
		})
		assert.Equal(t, want, r.Most[0].Permits, strategies)
		assert.Equal(t, want, r.Most[0].KeyPermits, strategies)
	}
}

// Requests of one instant are a nanosecond apart, so that they have an order. Tables do not show it.
func TestResult_MostFromTheBeginning(t *testing.T) {
	r := runFile(t, "pipelines: {p: {strategies: [{timeout: {timeout: 1s}}]}}", func(*Scenario) {})
	require.NotZero(t, r.Most[0].At)
	row := mostTable(r).Rows[0]
	assert.Equal(t, []string{"0", "0"}, []string{row[2], row[4]})
}

// A result names the keys that were rejected most and those with the most executions.
func TestResult_NamesAbuser(t *testing.T) {
	r := runFile(t, `
limiters: {a: {partitioned: {key: key, each: {token_bucket: {token_limit: 1, tokens_per_period: 1, replenishment_period: 1s}}}}}
pipelines: {p: {strategies: [{rate_limiter: {limiter: a}}]}}
`, func(s *Scenario) { s.Load.Keys = AbuserKeys{Share: 0.8, Others: 30} })
	require.NotEmpty(t, r.Keys.MostRejected)
	require.Len(t, r.Keys.MostOffered, 10)
	assert.Equal(t, "abuser", r.Keys.MostRejected[0].Key)
	assert.Equal(t, "abuser", r.Keys.MostOffered[0].Key)
	assert.Greater(t, r.Keys.MostRejected[0].Rejected, int64(300))
	for i, k := range r.Keys.MostOffered[1:] {
		assert.LessOrEqual(t, k.Offered, r.Keys.MostOffered[i].Offered)
	}
	for i, k := range r.Keys.MostRejected[1:] {
		assert.LessOrEqual(t, k.Rejected, r.Keys.MostRejected[i].Rejected)
		assert.Positive(t, k.Rejected)
	}
	for _, text := range []string{string(written(t, r.WriteTable)), string(written(t, r.WriteHTML))} {
		assert.Contains(t, text, "Keys with the most executions")
		assert.Contains(t, text, "Keys with the most rejections")
	}
}

// What chaos injects counts for the strategy, and what the service does after it does not.
func TestResult_ChaosFailures(t *testing.T) {
	r := runFile(t, "pipelines: {p: {strategies: [{chaos_fault: {enabled: true, rate: 0.2}}]}}", func(s *Scenario) {
		s.Service.FailureRate = 0.5
	})
	assert.Positive(t, r.Failures["p/Chaos.Fault"])
	assert.Positive(t, r.Failures[reasonFailed])
	assert.Len(t, r.Failures, 2)
}

// What takes no time is not shown as a measurement.
func TestResult_TimeInService(t *testing.T) {
	const file = "pipelines: {p: {strategies: [{timeout: {timeout: 10s}}]}}"
	r := runFile(t, file, func(*Scenario) {})
	assert.Contains(t, string(written(t, r.WriteTable)), "nothing took any time")
	r = runFile(t, file, func(s *Scenario) { s.Service.Latency = Exponential{Mean: 50 * time.Millisecond} })
	table := string(written(t, r.WriteTable))
	assert.Contains(t, table, "Time in the service")
	assert.NotContains(t, table, "Wait for a permit")
}

// The length of a recording is that of its requests, for people without a nanosecond more.
func TestResult_LengthOfRecording(t *testing.T) {
	r := runFile(t, "pipelines: {p: {strategies: [{timeout: {timeout: 10s}}]}}", func(s *Scenario) {
		name := filepath.Join(t.TempDir(), "in.csv")
		require.NoError(t, os.WriteFile(name, []byte("0\n1.5\n"), 0o600))
		recording, err := ReadCSV(name, nil)
		require.NoError(t, err)
		s.Load = Load{Recording: recording}
	})
	table := string(written(t, r.WriteTable))
	assert.True(t, strings.HasPrefix(table, "Simulation of pipeline p: 1.5s of requests\n"), table)
}

// A picture of several results has the same load at the same height, also of one that ends much later and has wider bars.
func TestWriteResultsSVG_SameLoad(t *testing.T) {
	short := runFile(t, "pipelines: {p: {strategies: [{timeout: {timeout: 10s}}]}}", func(*Scenario) {})
	long := *short
	for len(long.Series) < 5*chartPoints {
		long.Series = append(long.Series, Point{At: time.Duration(len(long.Series)) * long.Interval})
	}
	most := func(r *Result) float64 { return slices.Max(admittedChart(r).Series[0].Values) }
	assert.InEpsilon(t, most(short), most(&long), 0.2)
}

// The latencies of an interval are not kept after it.
func TestCollector_Memory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	now, before := time.Duration(0), heap()
	c := newCollector(&Scenario{Interval: time.Second}, func() time.Duration { return now })
	for range 10_000 {
		c.ended(&request{begun: now - time.Second}, nil)
		now += time.Second
	}
	assert.Less(t, int64(heap()-before), int64(20_000_000))
	r := c.finish(nil)
	assert.Equal(t, time.Second, r.Series[0].Latency.P50)
	assert.Equal(t, time.Second, r.Series[9_999].Latency.P50)
	assert.EqualValues(t, 1, r.Series[9_999].Latency.Count)
}

// A failure counts for the strategy that failed in place of those behind it, whatever its error is.
func TestResult_FailedStrategy(t *testing.T) {
	fails := func(name string, err error) pipeline.Strategy { return failing{name, err} }
	for want, strategies := range map[string][]pipeline.Strategy{
		"p/Late":  {chaos.NewFault(nil), fails("Late", context.DeadlineExceeded)},
		"p/Own":   {fails("Outer", nil), fails("Own", errors.New("boom")), fails("Inner", nil)},
		"p/Fault": {hedge.New(nil), chaos.NewFault(&chaos.FaultOptions{Options: chaos.Options{Name: "Fault", Enabled: true, Rate: 1}})},
	} {
		r := through(t, Scenario{
			Load: constant(10, time.Second),
			Config: func(*Setup) (registry.Change, error) {
				return registry.Change{Define: map[string]registry.BuildFunc{"p": func(b *registry.Builder) error {
					b.Add(strategies...)
					return nil
				}}}, nil
			},
		})
		assert.Equal(t, map[string]int64{want: 10}, r.Failures)
	}
}

// failing fails with its error, if it has one.
type failing struct {
	name string
	err  error
}

func (f failing) Name() string { return f.name }

func (f failing) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if f.err != nil {
		return nil, f.err
	}
	return next.Run(ctx)
}
