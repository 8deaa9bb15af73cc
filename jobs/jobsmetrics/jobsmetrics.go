// Package jobsmetrics makes OpenTelemetry metrics of throttled jobs. The page docs/jobs.md lists the instruments.
package jobsmetrics

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/jobs"
)

const scope = "github.com/weir-go/weir/jobs"

// Observe counts what t decides from now on, and shows what all programs on its database hold and wait for. Unregister ends the
// latter, which queries the database at each collection: call it before the pool of t is closed. If p is nil, the global provider of
// OpenTelemetry makes the instruments.
func Observe(t *jobs.Throttler, p metric.MeterProvider) (metric.Registration, error) {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	meter := p.Meter(scope)
	var errs [5]error
	runs, err := meter.Int64Counter("weir.jobs.runs", metric.WithUnit("{run}"),
		metric.WithDescription("Runs of jobs that were granted a limiter, or throttled or cancelled because of it."))
	errs[0] = err
	waited, err := meter.Float64Histogram("weir.jobs.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("The time from when a job was first throttled until it was granted."),
		metric.WithExplicitBucketBoundaries(0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 4*3600, 24*3600))
	errs[1] = err
	holders, err := meter.Int64ObservableGauge("weir.jobs.holders", metric.WithUnit("{slot}"),
		metric.WithDescription("Slots of a limiter that are held, of all keys, by all programs."))
	errs[2] = err
	waiters, err := meter.Int64ObservableGauge("weir.jobs.waiters", metric.WithUnit("{job}"),
		metric.WithDescription("Jobs that wait for a limiter, of all keys, of all programs."))
	errs[3] = err
	registration, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		infos, err := t.Limiters(ctx)
		for _, i := range infos {
			o.ObserveInt64(holders, int64(i.Holders), attributesOf(i.Ref))
			o.ObserveInt64(waiters, int64(i.Waiters), attributesOf(i.Ref))
		}
		return err
	}, holders, waiters)
	errs[4] = err
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	t.OnDecision(func(ctx context.Context, d jobs.Decision) {
		count := func(limiter jobs.Ref, outcome string) {
			runs.Add(ctx, 1, attributesOf(limiter, attribute.String("weir.jobs.outcome", outcome)))
		}
		switch {
		case d.Cancelled:
			count(d.Limiter, "cancelled")
		case d.Granted == nil:
			count(d.Limiter, "throttled")
		}
		for _, limiter := range d.Granted {
			count(limiter, "granted")
		}
		if d.Waited > 0 {
			waited.Record(ctx, d.Waited.Seconds(), attributesOf(d.Limiter))
		}
	})
	return registration, nil
}

// attributesOf names a limiter. Keys are not in it: there may be any number of them.
func attributesOf(r jobs.Ref, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(more,
		attribute.String("weir.jobs.limiter.type", string(r.Type)), attribute.String("weir.jobs.limiter.name", r.Name))...)
}
