package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// observed are the objects that collections ask, by name. The zero value has none.
type observed[T any] struct {
	mu  sync.Mutex
	all []*namedObject[T] // those of one name stand together, the oldest first
}

type namedObject[T any] struct {
	name   string
	object T
}

// add adds an object until stop is called. A name keeps its place as long as it has an object, so that replacing a limiter does not
// move its name beyond the bound on series.
func (o *observed[T]) add(name string, object T) (stop func()) {
	added := &namedObject[T]{name, object}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := len(o.all)
	for at > 0 && o.all[at-1].name != name {
		at--
	}
	if at == 0 {
		at = len(o.all)
	}
	o.all = slices.Insert(o.all, at, added)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = slices.DeleteFunc(o.all, func(other *namedObject[T]) bool { return other == added })
	}
}

// newest returns the newest object of each name.
func (o *observed[T]) newest() (newest []*namedObject[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, each := range o.all {
		if i+1 == len(o.all) || o.all[i+1].name != each.name {
			newest = append(newest, each)
		}
	}
	return newest
}

// statisticsTimeout bounds the wait of a collection for the statistics of limiters. All limiters are asked at once.
const statisticsTimeout = time.Second

// An observedLimiter is asked by one goroutine at a time, even if collections overlap.
type observedLimiter struct {
	limiter    limiter.StatisticsProvider
	statistics ask.Asker[limiter.Statistics]
}

// observeLimiters asks all limiters at once. The answers of the limiters beyond the limit are added up.
func observeLimiters(ctx context.Context, o observation, limiters *observed[*observedLimiter], limit int) {
	all := limiters.newest()
	ctx, cancel := context.WithTimeout(ctx, statisticsTimeout)
	defer cancel()
	questions := make([]*ask.Question[limiter.Statistics], len(all))
	for i, l := range all {
		questions[i] = l.object.ask()
	}
	var beyond limiter.Statistics
	overflows := false
	for i, q := range questions {
		s, ok := q.Wait(ctx)
		switch {
		case !ok:
		case i < limit:
			o.limiter(s, attribute.String(keyLimiter, all[i].name))
		default:
			overflows = true
			beyond.AvailablePermits = saturate.Add(beyond.AvailablePermits, s.AvailablePermits)
			beyond.QueuedPermits = saturate.Add(beyond.QueuedPermits, s.QueuedPermits)
		}
	}
	if overflows {
		o.limiter(beyond, attribute.Bool(keyOverflow, true))
	}
}

func (o observation) limiter(s limiter.Statistics, attributes attribute.KeyValue) {
	o.int(available, s.AvailablePermits, with(attributes))
	o.int(queued, s.QueuedPermits, with(attributes))
}

// ask calls Statistics, or joins the call that is running. A limiter of the program can panic in it, block, or end the
// goroutine.
func (o *observedLimiter) ask() *ask.Question[limiter.Statistics] {
	return o.statistics.Ask("telemetry: Statistics of an observed limiter", func() limiter.Statistics {
		asker, ok := o.limiter.(interface {
			StatisticsContext(ctx context.Context) limiter.Statistics
		})
		if !ok {
			return o.limiter.Statistics()
		}
		// A shared limiter whose store does not answer returns what it knows after this time, while the collection still
		// waits.
		ctx, cancel := context.WithTimeout(context.Background(), statisticsTimeout*3/4)
		defer cancel()
		return asker.StatisticsContext(ctx)
	})
}

// An observedStore is a store whose counter of calls never goes down.
type observedStore struct {
	store     *store.Store
	mu        sync.Mutex
	succeeded int64 // the highest number of successful calls so far
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.succeeded = max(s.succeeded, c.Calls-c.Failures)
	return s.succeeded
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

// reloads has how loading the configuration went.
type reloads struct {
	mu                  sync.Mutex
	successes, failures int64
	lastFailed          bool
	lastSuccess         time.Time
}

func (r *reloads) record(at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastFailed = err != nil
	if r.lastFailed {
		r.failures++
		return
	}
	r.successes++
	r.lastSuccess = at
}

func (r *reloads) observe(o observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.successes+r.failures == 0 {
		return // the program may have no configuration file
	}
	o.int(reloadCount, r.successes, with(attribute.String(keyResult, "success")))
	o.int(reloadCount, r.failures, with(attribute.String(keyResult, "failure")))
	o.bool(reloadOK, !r.lastFailed)
	if r.successes > 0 {
		o.float(reloadOKTime, float64(r.lastSuccess.UnixMilli())/1000)
	}
}
