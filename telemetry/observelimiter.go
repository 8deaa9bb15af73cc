package telemetry

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/internal/ask"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/limiter"
)

// statisticsTimeout bounds the wait of a collection for the statistics of limiters. All limiters are asked at once.
const statisticsTimeout = time.Second

// limiters are the observed limiters. The zero value has none.
type limiters struct {
	mu     sync.Mutex
	byName map[string]*namedLimiter
	added  int
}

// A namedLimiter has the limiters that are observed by one name. As long as there is one, the name keeps its order,
// so that replacing a limiter does not move the name beyond the bound on series.
type namedLimiter struct {
	order int // the number of names that were added before
	all   []*observedLimiter
}

// An observedLimiter is asked by one goroutine at a time, even if collections overlap.
type observedLimiter struct {
	limiter limiter.StatisticsProvider
	options []metric.ObserveOption

	statistics ask.Asker[limiter.Statistics]
}

// ObserveLimiter exports the available and the queued permits of l until stop is called, with name as the attribute
// limiter.name. Of several limiters with the same name the newest is exported. [Options.MaxSeries] bounds the names; the
// limiters beyond it are added up. stop can be called more than once.
//
// Each collection of metrics calls Statistics of all limiters at once, each on its own goroutine. A limiter that does not
// answer within a second, or that panics, is missing from that collection. It is not asked again before it has answered.
//
// A registry calls ObserveLimiter for the limiters that it owns. For other limiters, call it where the limiter is
// made, and call stop where the limiter is closed. Do not call it for the single limiters of a partitioned limiter:
// each key would make its own series.
func (t *Telemetry) ObserveLimiter(name string, l limiter.StatisticsProvider) (stop func()) {
	o := &observedLimiter{
		limiter: l,
		options: newSeries(attribute.String(keyLimiter, name)).observe,
	}
	t.limiters.add(name, o)
	return func() { t.limiters.remove(name, o) }
}

func (l *limiters) add(name string, o *observedLimiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil {
		l.byName = map[string]*namedLimiter{}
	}
	named := l.byName[name]
	if named == nil {
		named = &namedLimiter{order: l.added}
		l.byName[name] = named
		l.added++
	}
	named.all = append(named.all, o)
}

func (l *limiters) remove(name string, o *observedLimiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	named := l.byName[name]
	if named == nil {
		return
	}
	named.all = slices.DeleteFunc(named.all, func(other *observedLimiter) bool { return other == o })
	if len(named.all) == 0 {
		delete(l.byName, name)
	}
}

// newest returns the newest limiter of each name, in the order in which the names were added.
func (l *limiters) newest() []*observedLimiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]*namedLimiter, 0, len(l.byName))
	for _, named := range l.byName {
		names = append(names, named)
	}
	slices.SortFunc(names, func(a, b *namedLimiter) int { return cmp.Compare(a.order, b.order) })
	newest := make([]*observedLimiter, len(names))
	for i, named := range names {
		newest[i] = named.all[len(named.all)-1]
	}
	return newest
}

// A limiterFigure is what one collection exports for a limiter.
type limiterFigure struct {
	available, queued int64
	options           []metric.ObserveOption
}

var overflowOptions = newSeries(attribute.Bool(keyOverflow, true)).observe

// ask asks all limiters at once. The answers of the limiters beyond the limit are added up.
func (l *limiters) ask(ctx context.Context, limit int) []limiterFigure {
	all := l.newest()
	if len(all) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statisticsTimeout)
	defer cancel()
	questions := make([]*ask.Question[limiter.Statistics], len(all))
	for i, o := range all {
		questions[i] = o.ask()
	}
	var figures []limiterFigure
	var overflow limiterFigure
	for i, q := range questions {
		s, ok := q.Wait(ctx)
		switch {
		case !ok:
		case i < limit:
			figures = append(figures, limiterFigure{s.AvailablePermits, s.QueuedPermits, all[i].options})
		default:
			overflow.options = overflowOptions
			overflow.available = saturate.Add(overflow.available, s.AvailablePermits)
			overflow.queued = saturate.Add(overflow.queued, s.QueuedPermits)
		}
	}
	if overflow.options != nil {
		figures = append(figures, overflow)
	}
	return figures
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
