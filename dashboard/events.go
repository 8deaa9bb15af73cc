package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
)

const (
	// maxEvents bounds the events that are shown.
	maxEvents = 200
	// maxEventSeries bounds the events that are told apart. Those beyond it are one.
	maxEventSeries = 4096
	// An event that comes again within joinGap joins the one before, for up to joinLength.
	joinGap    = 30 * time.Second
	joinLength = time.Minute
)

// Events keeps the last 200 events of a registry for a [Dashboard]. It is a [pipeline.Listener] for
// [registry.Options.Listener]; use [pipeline.Listeners] for several. The zero Events is ready to use. It is safe for
// concurrent use, and must not be copied.
//
// It wants only what is out of the ordinary: see [pipeline.Hooks.Rare]. An event that comes
// again within 30 s, such as the rejections of an overloaded limiter, is counted and shown as one event for up to a minute.
// So a flood of them does not hide that a circuit has opened.
type Events struct {
	isolations isolations

	mu      sync.RWMutex
	series  map[eventKey]*eventSeries
	flushed time.Time   // when flush was last called
	rows    []*eventRow // the one that changed last comes last
}

// An eventKey says which events count as the same.
type eventKey struct {
	name   string
	source pipeline.Source
	where  string // where it happened, for events of a store and of the dashboard
}

// An eventSeries counts the events with one key.
type eventSeries struct {
	eventKey
	severity pipeline.Severity // of the last event that was recorded
	// pending is the number of events since the last flush. The event that makes it 1 is recorded, the others only
	// counted, so that an execution pays for a lock and the clock rarely.
	pending atomic.Int64

	row   *eventRow // the newest; guarded by Events.mu, as what follows
	total int64
	rate  rateMeter
	since time.Time // since when it happens again and again
	last  time.Time // the last flush that found events
}

// An eventRow is one line of the list.
type eventRow struct {
	eventKey
	severity    pipeline.Severity
	first, last time.Time
	count       int64
	text        string // the error or what was done
	operation   string
	user        string // who did it, for actions
	key         string // the key of a partition, for events of a store
}

// Hooks implements [pipeline.Listener]. OnEvent records the event. InForce isolates the circuits of a pipeline again that a user
// of the dashboard has isolated: a reload can have made new circuits. Forget drops what was counted for a pipeline that was
// removed; the events that are listed stay.
func (v *Events) Hooks() pipeline.Hooks {
	return pipeline.Hooks{OnEvent: v.onEvent, Rare: true, InForce: v.isolations.again, Forget: v.forget}
}

func (v *Events) onEvent(ctx context.Context, e pipeline.Event) {
	if s := v.find(eventKey{name: e.Name, source: e.Source}); s.pending.Add(1) == 1 {
		if e.Severity > pipeline.SeverityCritical { // of a strategy of the program; JSON has no text for it
			e.Severity = pipeline.SeverityNone
		}
		v.record(s, e.Severity, eventRow{text: textOf(e), operation: pipeline.Operation(ctx)})
	}
}

// find returns the series of a key.
func (v *Events) find(key eventKey) *eventSeries {
	v.mu.RLock()
	s := v.series[key]
	v.mu.RUnlock()
	if s != nil {
		return s
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	s = v.series[key]
	if s == nil && len(v.series) >= maxEventSeries {
		key = eventKey{name: "further events"}
		s = v.series[key]
	}
	if s == nil {
		s = &eventSeries{eventKey: key}
		s.rate.add(cmp.Or(v.flushed, time.Now().Add(-tick)), 0) // there was none until then
		if v.series == nil {
			v.series = map[eventKey]*eventSeries{}
		}
		v.series[key] = s
	}
	return s
}

// record adds an event to the newest row of its series, or a row of its own. more has what the event says.
func (v *Events) record(s *eventSeries, severity pipeline.Severity, more eventRow) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	s.severity = severity
	r := s.row
	if r == nil || now.Sub(r.last) > joinGap || now.Sub(r.first) > joinLength {
		r = &eventRow{eventKey: s.eventKey, first: now}
		s.row = r
	} else if i := slices.Index(v.rows, r); i >= 0 {
		v.rows = slices.Delete(v.rows, i, i+1)
	}
	r.last, r.severity = now, severity
	r.text, r.operation, r.user, r.key = more.text, more.operation, more.user, more.key
	v.append(r)
}

// append adds a row. The caller holds v.mu.
func (v *Events) append(r *eventRow) {
	if len(v.rows) >= maxEvents {
		v.rows = slices.Delete(v.rows, 0, len(v.rows)-maxEvents+1)
	}
	v.rows = append(v.rows, r)
}

// add records an event that is not one of a pipeline, such as an action.
func (v *Events) add(name, where string, severity pipeline.Severity, more eventRow) {
	now := time.Now()
	more.eventKey = eventKey{name: name, where: where}
	more.first, more.last, more.severity, more.count = now, now, severity, 1
	v.mu.Lock()
	defer v.mu.Unlock()
	v.append(&more)
}

// flush counts the events that were not counted yet. A Dashboard calls it regularly.
func (v *Events) flush(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flushed = now
	for _, s := range v.series {
		n := s.pending.Swap(0)
		s.total += n
		s.rate.add(now, s.total)
		if n == 0 || s.row == nil {
			continue
		}
		s.row.count += n
		if n > 1 {
			s.row.last = now
		}
		if now.Sub(s.last) > joinGap {
			s.since = s.row.first
		}
		s.last = now
	}
}

// all returns the rows, the newest first.
func (v *Events) all() []eventRow {
	v.mu.Lock()
	defer v.mu.Unlock()
	rows := make([]eventRow, 0, len(v.rows))
	for _, r := range slices.Backward(v.rows) {
		each := *r
		each.count = max(each.count, 1) // not flushed yet
		rows = append(rows, each)
	}
	slices.SortStableFunc(rows, func(a, b eventRow) int { return b.last.Compare(a.last) })
	return rows
}

// An eventCount says how often an event has happened.
type eventCount struct {
	eventKey
	severity pipeline.Severity
	total    int64
	rate     float64   // a second
	text     string    // of the last one
	last     time.Time // when it was last recorded
	since    time.Time // since when it happens again and again
}

// counts returns how often each event of a pipeline has happened.
func (v *Events) counts() []eventCount {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var all []eventCount
	for key, s := range v.series {
		if key.source.Pipeline != "" && s.row != nil {
			all = append(all, eventCount{key, s.severity, s.total, orZero(s.rate.perSecond()), s.row.text, s.row.last, s.since})
		}
	}
	return all
}

func (v *Events) forget(p pipeline.Source) {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.series, func(key eventKey, _ *eventSeries) bool { return isOf(key.source, p) })
	v.isolations.forget(p)
}

// OnStoreEvent returns a function for the option OnEvent of a [store.Store]. name is the store's name on the pages.
func (v *Events) OnStoreEvent(name string) func(store.Event) {
	return func(e store.Event) {
		where := "store " + name
		if e.Shard != "" {
			where += ", shard " + e.Shard
		}
		if e.Limiter != "" {
			where += ", limiter " + e.Limiter
		}
		if s := v.find(eventKey{name: e.Kind.String(), where: where}); s.pending.Add(1) == 1 {
			v.record(s, storeSeverity(e.Kind), eventRow{text: storeText(e), key: e.Key})
		}
	}
}

func storeSeverity(k store.EventKind) pipeline.Severity {
	switch k {
	case store.EventStoreLost, store.EventLeaseLost:
		return pipeline.SeverityError
	case store.EventRefundLost, store.EventListenFailed, store.EventOverruled:
		return pipeline.SeverityWarning
	default:
		return pipeline.SeverityInformation
	}
}

func storeText(e store.Event) string {
	switch {
	case e.Err != nil:
		return errorText(e.Err)
	case e.Away > 0:
		return "away for " + e.Away.Round(time.Millisecond).String()
	default:
		return ""
	}
}

// ConfigReloaded records that a configuration file was read, as the Reporter of a [reload.Watcher].
func (v *Events) ConfigReloaded(_ time.Time, err error) {
	if err != nil {
		v.add("ConfigRefused", "configuration", pipeline.SeverityError, eventRow{text: errorText(err)})
		return
	}
	v.add("ConfigLoaded", "configuration", pipeline.SeverityInformation, eventRow{})
}

// textOf returns what an event of a pipeline says.
func textOf(e pipeline.Event) string {
	if e.Err != nil {
		return errorText(e.Err)
	}
	if o, ok := e.Result.(registry.Override); ok {
		text := fmt.Sprintf("limiter %s: %s until %s, by %s: %s", o.Limiter, fieldsOf(o.Options), o.Until.UTC().Format(time.RFC3339), o.By, o.Reason)
		if o.Ended != "" {
			text = fmt.Sprintf("limiter %s: %s (it was by %s: %s)", o.Limiter, o.Ended, o.By, o.Reason)
		}
		return shorten(text, maxText)
	}
	return ""
}
