package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	sharing "github.com/weir-go/weir/store"
)

// sharedStores are the stores of shared limiters that are observed. The zero value has
// none.
type sharedStores struct {
	mu  sync.Mutex
	all []*observedStore
}

type observedStore struct {
	store                              *sharing.Store
	name                               string
	plain                              []metric.ObserveOption
	success, failure                   []metric.ObserveOption
	asked, remembered, borrowed, alone []metric.ObserveOption

	succeeded atomic.Int64 // the most calls that were seen to succeed
}

// ObserveStore exports how the store of shared limiters is doing, until stop is called, with
// name as the attribute store.name: whether the store and each part of it (see backend.Sharded) are
// available, the round trips, and where decisions came from. It does not call the store. stop can be called more
// than once.
func (t *Telemetry) ObserveStore(name string, s *sharing.Store) (stop func()) {
	with := func(more ...attribute.KeyValue) []metric.ObserveOption {
		return newSeries(append(more, attribute.String(keyStore, name))...).observe
	}
	o := &observedStore{
		store: s, name: name, plain: with(),
		success: with(attribute.String(keyResult, "success")), failure: with(attribute.String(keyResult, "failure")),
		asked: with(attribute.String(keyDecidedBy, "store")), remembered: with(attribute.String(keyDecidedBy, "cache")),
		borrowed: with(attribute.String(keyDecidedBy, "block")), alone: with(attribute.String(keyDecidedBy, "outage")),
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

func (s *sharedStores) observe(o metric.Observer, i *instruments) {
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
		if p.Shard != "" { // else the store itself
			o.ObserveInt64(i.storeAvailable, oneIfNil(p.Err), metric.WithAttributes(withSendable([]attribute.KeyValue{
				attribute.String(keyStore, s.name), attribute.String(keyPart, p.Shard),
			})...))
		}
	}
	c := s.store.Counters()
	o.ObserveInt64(i.storeCalls, s.successes(c), s.success...)
	o.ObserveInt64(i.storeCalls, c.Failures, s.failure...)
	o.ObserveInt64(i.storeDecisions, c.Decisions, s.asked...)
	o.ObserveInt64(i.storeDecisions, c.Cached, s.remembered...)
	o.ObserveInt64(i.storeDecisions, c.FromBlocks, s.borrowed...)
	o.ObserveInt64(i.storeDecisions, c.Outages, s.alone...)
}

func oneIfNil(err error) int64 {
	if err != nil {
		return 0
	}
	return 1
}

// successes returns the calls that have not failed. A call that is under way is counted in Calls already, and
// when it fails, Calls less Failures goes down. A counter must not: its readers take that for a restart.
func (s *observedStore) successes(c sharing.Counters) int64 {
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

// OnStoreEvent returns a function for the option OnEvent of a [sharing.Store]. It writes a log line for each
// event, with name as store.name and the part, if there is one, as store.part. Events that cost callers permits,
// or make the limit inexact, are warnings or errors. The partition's key is not in the line. Without [Options.Logger] the function does nothing.
func (t *Telemetry) OnStoreEvent(name string) func(sharing.Event) {
	return func(e sharing.Event) {
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
			attrs = append(attrs, slog.String(keyPart, e.Shard))
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

func storeLevel(k sharing.EventKind) slog.Level {
	switch k {
	case sharing.EventStoreLost, sharing.EventLeaseLost:
		return slog.LevelError
	case sharing.EventRefundLost, sharing.EventListenFailed, sharing.EventOverruled:
		return slog.LevelWarn
	default:
		return slog.LevelInfo
	}
}
