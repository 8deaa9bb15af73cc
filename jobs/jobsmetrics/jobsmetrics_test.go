package jobsmetrics

import (
	"context"
	"testing"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/jobs"
	"github.com/weir-go/weir/jobs/internal/jobstest"
	"github.com/weir-go/weir/tools/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Runner(m)) }

func TestObserve(t *testing.T) {
	db := jobstest.New(t, testserver.Postgres(t).URL, jobs.Migrate)
	onMutex := []jobs.Limit{{Mutex: "m"}}
	th, err := jobs.New(t.Context(), db.Pool, &jobs.Options{Schema: db.Schema, RiverSchema: db.River, HandOver: -1, Config: jobs.Config{Throttles: []jobs.KindThrottle{
		{Kinds: []string{"snoozed"}, Throttle: jobs.Throttle{Limits: onMutex}},
		{Kinds: []string{"cancelled"}, Throttle: jobs.Throttle{Limits: onMutex, Cancel: true}},
	}}})
	require.NoError(t, err)
	reader := sdk.NewManualReader()
	registration, err := Observe(th, sdk.NewMeterProvider(sdk.WithReader(reader)))
	require.NoError(t, err)

	plugin := th.Plugin().(interface {
		rivertype.WorkerMiddleware
		rivertype.HookWorkBegin
	})
	run := func(job *rivertype.JobRow, work func()) error {
		return plugin.Work(context.Background(), job, func(ctx context.Context) error {
			err := plugin.WorkBegin(ctx, job)
			if err == nil {
				work()
			}
			return err
		})
	}
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

	snoozed, cancelled := db.Job("snoozed", nil), db.Job("cancelled", nil)
	require.NoError(t, run(db.Job("snoozed", nil), func() {
		var snooze *rivertype.JobSnoozeError
		require.ErrorAs(t, run(snoozed, nil), &snooze)
		var cancel *river.JobCancelError
		require.ErrorAs(t, run(cancelled, nil), &cancel)
		assert.Equal(t, map[string]float64{
			"weir.jobs.runs granted": 1, "weir.jobs.runs throttled": 1, "weir.jobs.runs cancelled": 1, "weir.jobs.holders": 1, "weir.jobs.waiters": 1,
		}, figures())
	}))
	for err = run(snoozed, func() {}); err != nil; err = run(snoozed, func() {}) { // until the release is written
		var snooze *rivertype.JobSnoozeError
		require.ErrorAs(t, err, &snooze)
	}
	require.NoError(t, th.Close()) // writes the last release
	got := figures()
	assert.GreaterOrEqual(t, got["weir.jobs.runs throttled"], 1.0)
	delete(got, "weir.jobs.runs throttled")
	assert.Equal(t, map[string]float64{
		"weir.jobs.runs granted": 2, "weir.jobs.runs cancelled": 1, "weir.jobs.holders": 0, "weir.jobs.waiters": 0, "weir.jobs.wait.duration": 1,
	}, got)
	require.NoError(t, registration.Unregister())
}
