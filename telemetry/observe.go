package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/metric"
)

// observe exports counters and gauges when metrics are collected. A series that it does not observe is no longer
// exported. It returns no error, because a reader would drop the whole collection.
func (t *Telemetry) observe(ctx context.Context, o metric.Observer) error {
	t.collected.Store(true)
	limiters := t.limiters.ask(ctx, t.options.MaxSeries) // first, because it can take a second
	t.series.findOpenCircuits()
	var circuits circuitOverflow
	t.series.each(func(s *source) {
		s.tables[events].each(func(s *series) {
			o.ObserveInt64(t.instruments.events, s.count.Load(), s.observe...)
		})
		if l := s.limiter.Load(); l != nil {
			l.observe(o, &t.instruments)
		}
		if c := s.circuit.Load(); c != nil {
			c.observe(o, &t.instruments, &circuits)
		}
	})
	circuits.observe(o, &t.instruments)
	for _, l := range limiters {
		o.ObserveInt64(t.instruments.available, l.available, l.options...)
		o.ObserveInt64(t.instruments.queued, l.queued, l.options...)
	}
	t.requests.observe(o, &t.instruments)
	t.reloads.observe(o, &t.instruments)
	t.stores.observe(o, &t.instruments)
	return nil
}
