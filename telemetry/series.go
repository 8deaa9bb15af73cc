package telemetry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/pipeline"
)

// A kind is an instrument that has series for different events.
type kind int

const (
	events kind = iota
	executions
	attempts
	kinds
)

// A key tells apart the series of one source and kind.
type key struct {
	event     string
	severity  pipeline.Severity
	operation string
	errorType string
	attempt   int
	handled   bool
	extra     attribute.Distinct // of what Enrich added
}

// is reports whether k and o are equal.
func (k *key) is(o *key) bool {
	return k.severity == o.severity && k.attempt == o.attempt && k.handled == o.handled && k.extra == o.extra &&
		same(k.event, o.event) && same(k.operation, o.operation) && same(k.errorType, o.errorType)
}

// same is a == b for strings that nearly always lie in the same place: then it does without the call that compares
// bytes, which an event would make a dozen times.
func same(a, b string) bool {
	return len(a) == len(b) && (len(a) == 0 || unsafe.StringData(a) == unsafe.StringData(b) || a == b)
}

// attributes are what k says of a series of kind i, without its source.
func (k *key) attributes(i kind, extra []attribute.KeyValue) []attribute.KeyValue {
	attrs := slices.Clone(extra) // first: of two with one name the last counts
	attrs = appendString(attrs, keyEvent, k.event)
	if i != executions {
		attrs = append(attrs, attribute.String(keySeverity, k.severity.String()))
	}
	attrs = appendString(attrs, keyOperation, k.operation)
	attrs = appendString(attrs, keyErrorType, k.errorType)
	if i == attempts {
		attrs = appendAttempt(attrs, k.attempt, k.handled)
	}
	return attrs
}

// A series is one combination of attributes of one instrument. The options hold
// the attributes: made once, they cost nothing to hand on.
type series struct {
	record  []metric.RecordOption
	observe []metric.ObserveOption
	count   atomic.Int64              // of events; the SDK keeps what histograms have
	span    atomic.Pointer[spanStart] // nil until there is a span
}

func newSeries(attrs ...attribute.KeyValue) *series {
	o := metric.WithAttributeSet(attribute.NewSet(withSendable(attrs)...))
	return &series{record: []metric.RecordOption{o}, observe: []metric.ObserveOption{o}}
}

// A source is what is kept for one [pipeline.Source].
type source struct {
	of       pipeline.Source
	tables   [kinds]table
	limiter  atomic.Pointer[limiterSeries] // nil until it is asked for
	circuits atomic.Pointer[circuitSeries] // nil until it has an event
	inForce  atomic.Pointer[circuit]       // nil until a registry has replaced the pipeline
	removed  bool                          // guarded by the store
}

// A table has the series of one kind. It is read without a lock.
type table struct {
	first    atomic.Pointer[entry] // the first plain one, which nearly all events are for, or else the first
	all      atomic.Pointer[map[key]*series]
	overflow atomic.Pointer[series] // for what there is no room for
}

type entry struct {
	key    key
	series *series
	plain  bool // of a first attempt that went well, and without attributes of Enrich
}

func (t *table) find(k *key) *series {
	if first := t.first.Load(); first != nil && first.key.is(k) {
		return first.series
	}
	if all := t.all.Load(); all != nil {
		return (*all)[*k]
	}
	return nil
}

// A store has the series of all sources. What is read while pipelines run is
// never changed but replaced, under the lock: there are few changes once every
// pipeline has been used.
type store struct {
	sources atomic.Pointer[map[pipeline.Source]*source]
	front   [256]atomic.Pointer[source] // some of them, by slot
	rest    *source                     // of those for which there is no room; it has no attributes
	full    [kinds]atomic.Bool          // no room for further series

	requestsFull atomic.Bool // no room for further series of requests to rate limiters

	timesLeases bool // their durations are recorded

	mu           sync.Mutex
	limit        int
	kept         [kinds]int
	keptRequests int
	keptCircuits int
}

func (s *store) init(limit int, timesLeases bool) {
	s.limit, s.timesLeases = limit, timesLeases
	s.rest = new(source)
	s.sources.Store(&map[pipeline.Source]*source{})
}

// source returns what is kept for of.
func (s *store) source(of *pipeline.Source) *source {
	if found := s.front[slot(of)].Load(); found != nil &&
		same(found.of.Strategy, of.Strategy) && same(found.of.Pipeline, of.Pipeline) && same(found.of.Instance, of.Instance) {
		return found
	}
	if found := (*s.sources.Load())[*of]; found != nil {
		return found
	}
	return s.addSource(*of)
}

// slot is a poor hash, and four times as fast as the map's. Comparing costs next
// to nothing: the strings of a source are nearly always the same ones. It goes by what they
// say and not by where they are, because after a reload they are elsewhere.
func slot(of *pipeline.Source) uint8 {
	return ends(of.Pipeline) + 3*ends(of.Instance) + 7*ends(of.Strategy)
}

func ends(s string) uint8 {
	if s == "" {
		return 0
	}
	return uint8(len(s)) + 5*s[0] + 11*s[len(s)-1]
}

func (s *store) addSource(of pipeline.Source) *source {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := *s.sources.Load()
	if found := all[of]; found != nil {
		return found
	}
	if len(all) >= s.limit {
		return s.rest
	}
	added := &source{of: of}
	changed := maps.Clone(all)
	changed[of] = added
	s.sources.Store(&changed)
	s.front[slot(&of)].CompareAndSwap(nil, added)
	return added
}

// series returns the series of kind i for k. extra are the attributes that k.extra
// stands for.
func (s *store) series(from *source, i kind, k *key, extra []attribute.KeyValue) *series {
	t := &from.tables[i]
	if found := t.find(k); found != nil {
		return found
	}
	if o := t.overflow.Load(); o != nil && (from == s.rest || s.full[i].Load()) {
		return o
	}
	return s.add(from, i, k, extra)
}

// own returns the series of kind i for k if it has one of its own, else nil.
func (s *store) own(from *source, i kind, k *key) *series {
	s.series(from, i, k, nil)
	return from.tables[i].find(k)
}

func (s *store) add(from *source, i kind, k *key, extra []attribute.KeyValue) *series {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &from.tables[i]
	if found := t.find(k); found != nil {
		return found
	}
	if from == s.rest || s.kept[i] >= s.limit {
		return t.overflowOf(from.of)
	}
	added := newSeries(appendSource(k.attributes(i, extra), from.of)...)
	t.put(k, added)
	if !from.removed {
		s.kept[i]++
		s.full[i].Store(s.kept[i] >= s.limit)
	}
	return added
}

// put is called under the lock of the store.
func (t *table) put(k *key, added *series) {
	changed := map[key]*series{}
	if all := t.all.Load(); all != nil {
		changed = maps.Clone(*all)
	}
	changed[*k] = added
	t.all.Store(&changed)
	plain := k.errorType == "" && k.extra == attribute.Distinct{} && k.attempt == 0 && !k.handled
	if first := t.first.Load(); first == nil || plain && !first.plain {
		t.first.Store(&entry{key: *k, series: added, plain: plain})
	}
}

// overflowOf is called under the lock of the store.
func (t *table) overflowOf(of pipeline.Source) *series {
	if o := t.overflow.Load(); o != nil {
		return o
	}
	o := newSeries(appendSource([]attribute.KeyValue{attribute.Bool(keyOverflow, true)}, of)...)
	t.overflow.Store(o)
	return o
}

func (s *store) forget(of pipeline.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := maps.Clone(*s.sources.Load())
	for name, from := range kept {
		if name.Pipeline != of.Pipeline || name.Instance != of.Instance || of.Strategy != "" && name.Strategy != of.Strategy {
			continue
		}
		delete(kept, name)
		from.removed = true
		s.front[slot(&name)].CompareAndSwap(from, nil)
		for i := range from.tables {
			s.kept[i] -= from.tables[i].len()
			s.full[i].Store(s.kept[i] >= s.limit)
		}
		s.forgetRequests(from)
		s.forgetCircuit(from)
	}
	s.sources.Store(&kept)
}

func (t *table) len() int {
	if all := t.all.Load(); all != nil {
		return len(*all)
	}
	return 0
}

// each calls f for every series of the table.
func (t *table) each(f func(*series)) {
	if all := t.all.Load(); all != nil {
		for _, s := range *all {
			f(s)
		}
	}
	if o := t.overflow.Load(); o != nil {
		f(o)
	}
}
