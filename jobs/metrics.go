package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const scope = "github.com/weir-go/weir/jobs"

// metrics are the instruments of a Throttler, listed in docs/jobs.md.
type metrics struct {
	runs             metric.Int64Counter
	waited           metric.Float64Histogram
	holders, waiters metric.Int64ObservableGauge
	callback         metric.Registration
}

func newMetrics(p metric.MeterProvider, limiters func(context.Context) ([]LimiterInfo, error)) (*metrics, error) {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	meter := p.Meter(scope)
	var m metrics
	var errs [4]error
	m.runs, errs[0] = meter.Int64Counter("weir.jobs.runs", metric.WithUnit("{run}"),
		metric.WithDescription("Runs of jobs that were granted a limiter, or throttled or cancelled because of it."))
	m.waited, errs[1] = meter.Float64Histogram("weir.jobs.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("The time from when a job was first throttled until it was granted."),
		metric.WithExplicitBucketBoundaries(0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 4*3600, 24*3600))
	m.holders, errs[2] = meter.Int64ObservableGauge("weir.jobs.holders", metric.WithUnit("{slot}"),
		metric.WithDescription("Slots of a limiter that are held, of all keys, by all programs."))
	m.waiters, errs[3] = meter.Int64ObservableGauge("weir.jobs.waiters", metric.WithUnit("{job}"),
		metric.WithDescription("Jobs that wait for a limiter, of all keys, of all programs."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	var err error
	m.callback, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		infos, err := limiters(ctx)
		for _, i := range infos {
			o.ObserveInt64(m.holders, int64(i.Holders), attributesOf(i.Ref))
			o.ObserveInt64(m.waiters, int64(i.Waiters), attributesOf(i.Ref))
		}
		return err
	}, m.holders, m.waiters)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return &m, nil
}

// attributesOf names a limiter. Keys are not in it: there may be any number of them.
func attributesOf(r Ref, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more,
		attribute.String("weir.jobs.limiter.type", string(r.Type)), attribute.String("weir.jobs.limiter.name", r.Name))...)
}

// count counts a decision: for all limits of a job that was granted, or for the one that the job waits for.
func (m *metrics) count(ctx context.Context, req *request, result decision) {
	add := func(limiter Ref, outcome string) {
		m.runs.Add(ctx, 1, attributesOf(limiter, attribute.String("weir.jobs.outcome", outcome)))
	}
	switch {
	case result.granted:
		for _, n := range req.needs {
			add(n.ref, "granted")
		}
		if result.waited > 0 {
			m.waited.Record(ctx, (time.Duration(result.waited) * time.Microsecond).Seconds(), attributesOf(result.limiter))
		}
	case req.snoozes:
		add(result.limiter, "throttled")
	default:
		add(result.limiter, "cancelled")
	}
}
