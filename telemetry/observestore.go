package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/store"
)

// observedStores are the stores of shared limiters that are observed. The zero value has none.
type observedStores struct {
	mu  sync.Mutex
	all []*observedStore
}

// An observedStore is a store with the options of its series.
type observedStore struct {
	store                               *store.Store
	name                                string
	plain                               []metric.ObserveOption // without a result
	success, failure                    []metric.ObserveOption // with that result of a round trip
	byStore, byCache, byBlock, byOutage []metric.ObserveOption // with that decided_by

	succeeded atomic.Int64 // the highest number of successful calls so far
}

// ObserveStore exports the state of a store of shared limiters until stop is called, with name as the attribute
// store.name: whether the store and each shard of it are available, its round trips, and where decisions came from. It
// makes no round trip itself. stop can be called more than once.
func (t *Telemetry) ObserveStore(name string, s *store.Store) (stop func()) {
	with := func(more ...attribute.KeyValue) []metric.ObserveOption {
		return newSeries(append(more, attribute.String(keyStore, name))...).observe
	}
	o := &observedStore{
		store: s, name: name, plain: with(),
		success: with(attribute.String(keyResult, "success")), failure: with(attribute.String(keyResult, "failure")),
		byStore: with(attribute.String(keyDecidedBy, "store")), byCache: with(attribute.String(keyDecidedBy, "cache")),
		byBlock: with(attribute.String(keyDecidedBy, "block")), byOutage: with(attribute.String(keyDecidedBy, "outage")),
	}
	t.stores.mu.Lock()
	t.stores.all = append(t.stores.all, o)
	t.stores.mu.Unlock()
	return func() {
		t.stores.mu.Lock()
		defer t.stores.mu.Unlock()
		t.stores.all = slices.DeleteFunc(t.stores.all, func(other *observedStore) bool { return other == o })
	}
}

func (s *observedStores) observe(o metric.Observer, i *instruments) {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, each := range all {
		each.observe(o, i)
	}
}

func (s *observedStore) observe(o metric.Observer, i *instruments) {
	h := s.store.Health()
	o.ObserveInt64(i.storeAvailable, oneIfNil(h.Err), s.plain...)
	for _, p := range h.Shards {
		o.ObserveInt64(i.storeAvailable, oneIfNil(p.Err), metric.WithAttributes(withSendable([]attribute.KeyValue{
			attribute.String(keyStore, s.name), attribute.String(keyShard, p.Shard),
		})...))
	}
	c := s.store.Counters()
	o.ObserveInt64(i.storeCalls, s.successes(c), s.success...)
	o.ObserveInt64(i.storeCalls, c.Failures, s.failure...)
	o.ObserveInt64(i.storeDecisions, c.Decisions, s.byStore...)
	o.ObserveInt64(i.storeDecisions, c.Cached, s.byCache...)
	o.ObserveInt64(i.storeDecisions, c.FromBlocks, s.byBlock...)
	o.ObserveInt64(i.storeDecisions, c.Outages, s.byOutage...)
}

// oneIfNil returns 1 if err is nil, else 0.
func oneIfNil(err error) int64 {
	if err != nil {
		return 0
	}
	return 1
}

// successes returns the number of calls that have not failed. It never goes down, although Calls - Failures does when a
// call that has begun fails: the readers of a counter would take that for a restart of the program.
func (s *observedStore) successes(c store.Counters) int64 {
	now := c.Calls - c.Failures
	for {
		most := s.succeeded.Load()
		if now <= most {
			return most
		}
		if s.succeeded.CompareAndSwap(most, now) {
			return now
		}
	}
}

// OnStoreEvent returns a function for the option OnEvent of a [store.Store]. It writes a log line for each event, with
// name as store.name and the shard, if the event has one, as store.shard. Events that cost callers permits or make a
// limit inexact are warnings or errors. The key of the partition is not in the line. Without [Options.Logger] the
// function does nothing.
func (t *Telemetry) OnStoreEvent(name string) func(store.Event) {
	return func(e store.Event) {
		if t.options.Logger == nil {
			return
		}
		ctx := context.Background()
		level := storeLevel(e.Kind)
		if !t.options.Logger.Enabled(ctx, level) {
			return
		}
		attrs := []slog.Attr{slog.String(keyEvent, e.Kind.String()), slog.String(keyStore, name)}
		if e.Shard != "" {
			attrs = append(attrs, slog.String(keyShard, e.Shard))
		}
		if e.Limiter != "" {
			attrs = append(attrs, slog.String(keyLimiter, e.Limiter))
		}
		if e.Permits != 0 {
			attrs = append(attrs, slog.Int64("permits", e.Permits))
		}
		if e.Away != 0 {
			attrs = append(attrs, slog.Duration(keyDuration, e.Away))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.String(keyResult, e.Err.Error()))
		}
		t.options.Logger.LogAttrs(ctx, level, "Limiter store event occurred", attrs...)
	}
}

func storeLevel(k store.EventKind) slog.Level {
	switch k {
	case store.EventStoreLost, store.EventLeaseLost:
		return slog.LevelError
	case store.EventRefundLost, store.EventListenFailed, store.EventOverruled:
		return slog.LevelWarn
	default:
		return slog.LevelInfo
	}
}
