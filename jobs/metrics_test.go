package jobs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weir-go/weir"
)

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	reader := sdk.NewManualReader()
	th := w.throttler(Options{HandOver: -1, MeterProvider: sdk.NewMeterProvider(sdk.WithReader(reader))})
	first := start(th, w.job("a", nil), onMutex).running(t)
	second := start(th, w.job("a", nil), onMutex)
	second.throttled(t)
	d := weir.Must(Declare(Throttle{Action: Cancel, Limits: []Limit{{Mutex: "m"}}}))
	<-start(th, w.job("a", nil), d).done

	figures := func() map[string]float64 {
		var all metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &all))
		out := map[string]float64{}
		for _, m := range all.ScopeMetrics[0].Metrics {
			add := func(set attribute.Set, v float64) {
				name, _ := set.Value("weir.jobs.limiter.name")
				kind, _ := set.Value("weir.jobs.limiter.type")
				outcome, _ := set.Value("weir.jobs.outcome")
				assert.Equal(t, "mutex m", kind.AsString()+" "+name.AsString())
				key := m.Name
				if outcome.AsString() != "" {
					key += " " + outcome.AsString()
				}
				out[key] += v
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			}
		}
		return out
	}
	assert.Equal(t, map[string]float64{
		"weir.jobs.runs granted": 1, "weir.jobs.runs throttled": 1, "weir.jobs.runs cancelled": 1, "weir.jobs.holders": 1, "weir.jobs.waiters": 1,
	}, figures())
	require.NoError(t, first.end(nil))
	th.flush()
	require.NoError(t, start(th, w.rerun(second.JobRow), onMutex).running(t).end(nil))
	th.flush()
	assert.Equal(t, map[string]float64{
		"weir.jobs.runs granted": 2, "weir.jobs.runs throttled": 1, "weir.jobs.runs cancelled": 1, "weir.jobs.holders": 0, "weir.jobs.waiters": 0,
		"weir.jobs.wait.duration": 1,
	}, figures())
}
