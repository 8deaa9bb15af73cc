package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/store"
)

// An observedStore is a store whose counter of calls never goes down.
type observedStore struct {
	store     *store.Store
	succeeded atomic.Int64 // the highest number of successful calls so far
}

func observeStores(o observation, stores *observed[*observedStore]) {
	for _, s := range stores.newest() {
		name := attribute.String(keyStore, s.name)
		h, c := s.object.store.Health(), s.object.store.Counters()
		o.bool(storeAvailable, h.Err == nil, with(name))
		for _, p := range h.Shards {
			o.bool(storeAvailable, p.Err == nil, with(name, attribute.String(keyShard, p.Shard)))
		}
		o.int(storeCalls, s.object.successes(c), with(name, attribute.String(keyResult, "success")))
		o.int(storeCalls, c.Failures, with(name, attribute.String(keyResult, "failure")))
		for by, n := range map[string]int64{"store": c.Decisions, "cache": c.Cached, "block": c.FromBlocks, "outage": c.Outages} {
			o.int(storeDecisions, n, with(name, attribute.String(keyDecidedBy, by)))
		}
	}
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

// logStoreEvent writes the line of an event of the store of that name.
func logStoreEvent(log *slog.Logger, name string, e store.Event) {
	ctx, level := context.Background(), storeLevel(e.Kind)
	if !log.Enabled(ctx, level) {
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
	log.LogAttrs(ctx, level, "Limiter store event occurred", attrs...)
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
