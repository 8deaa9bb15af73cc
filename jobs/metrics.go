package jobs

import (
	"context"
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
	var err error
	if m.runs, err = meter.Int64Counter("weir.jobs.runs", metric.WithUnit("{run}"),
		metric.WithDescription("Runs of jobs that were granted a limiter, or sent away by it.")); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	if m.waited, err = meter.Float64Histogram("weir.jobs.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("The time from when a job was first sent away until it was granted."),
		metric.WithExplicitBucketBoundaries(0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 4*3600, 24*3600)); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	if m.holders, err = meter.Int64ObservableGauge("weir.jobs.holders", metric.WithUnit("{slot}"),
		metric.WithDescription("Slots of a limiter that are held, of all keys, by all programs.")); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	if m.waiters, err = meter.Int64ObservableGauge("weir.jobs.waiters", metric.WithUnit("{job}"),
		metric.WithDescription("Jobs that wait for a limiter, of all keys, of all programs.")); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
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

// count counts a verdict: for all limits of a job that starts, or for the one that sends it away.
func (m *metrics) count(ctx context.Context, req *request, result decision) {
	switch {
	case result.granted:
		for _, n := range req.needs {
			m.runs.Add(ctx, 1, attributesOf(n.ref, attribute.String("weir.jobs.outcome", "granted")))
		}
		if result.waited > 0 {
			m.waited.Record(ctx, (time.Duration(result.waited) * time.Microsecond).Seconds(), attributesOf(result.limiter))
		}
	case req.snoozes:
		m.runs.Add(ctx, 1, attributesOf(result.limiter, attribute.String("weir.jobs.outcome", "throttled")))
	default:
		m.runs.Add(ctx, 1, attributesOf(result.limiter, attribute.String("weir.jobs.outcome", "cancelled")))
	}
}
