package telemetry

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/limiter"
)

// observe is called when metrics are collected. What it says nothing of is no
// longer exported.
func (t *Telemetry) observe(_ context.Context, o metric.Observer) error {
	t.collected.Store(true)
	t.series.each(func(s *source) {
		s.tables[events].each(func(s *series) {
			o.ObserveInt64(t.instruments.events, s.count.Load(), s.observe...)
		})
		if l := s.limiter.Load(); l != nil {
			l.observe(o, &t.instruments)
		}
		if c := s.circuits.Load(); c != nil {
			c.observe(o, &t.instruments)
		}
	})
	t.limiters.observe(o, &t.instruments)
	t.reloads.observe(o, &t.instruments)
	t.stores.observe(o, &t.instruments)
	return nil
}

// each calls f for every source.
func (s *store) each(f func(*source)) {
	for _, from := range *s.sources.Load() {
		f(from)
	}
	f(s.rest)
}

// limiters are those that are observed. The zero value has none.
type limiters struct {
	mu  sync.Mutex
	all []*observed // in the order in which they came
}

type observed struct {
	limiter limiter.StatisticsProvider
	options []metric.ObserveOption
}

// ObserveLimiter exports the permits of l that are left and those that are waited
// for, until stop is called, with name as the attribute limiter.name. Of two with
// the same name the newer one is seen. stop may be called any number of times.
//
// A registry calls it for the limiters that it owns. For others call it where they
// are made, and stop where they are closed; for one limiter of many, as behind a
// partition key, it is not meant.
func (t *Telemetry) ObserveLimiter(name string, l limiter.StatisticsProvider) (stop func()) {
	o := &observed{
		limiter: l,
		options: []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(attribute.String(keyLimiter, name)))},
	}
	t.limiters.add(o)
	return func() { t.limiters.remove(o) }
}

func (l *limiters) add(o *observed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, o)
}

func (l *limiters) remove(o *observed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(other *observed) bool { return other == o })
}

func (l *limiters) observe(o metric.Observer, i *instruments) {
	l.mu.Lock()
	all := slices.Clone(l.all)
	l.mu.Unlock()
	for _, each := range all { // without the lock: Statistics is code of others
		s := each.limiter.Statistics()
		o.ObserveInt64(i.available, s.AvailablePermits, each.options...)
		o.ObserveInt64(i.queued, s.QueuedPermits, each.options...)
	}
}
