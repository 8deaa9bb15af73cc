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

// An instrument is one of the three in which events are counted. It has a series for each combination of their
// attributes.
type instrument int

const (
	events instrument = iota
	executions
	attempts
	instrumentCount
)

// A key tells apart the series of one source and instrument.
type key struct {
	event     string
	severity  pipeline.Severity
	operation string
	errorType string
	attempt   int
	handled   bool
	extra     attribute.Distinct // the attributes that Enrich added
}

// equals reports whether k and o are equal.
func (k *key) equals(o *key) bool {
	return k.severity == o.severity && k.attempt == o.attempt && k.handled == o.handled && k.extra == o.extra &&
		equal(k.event, o.event) && equal(k.operation, o.operation) && equal(k.errorType, o.errorType)
}

// equal is a == b, faster for two strings that are nearly always the same one in memory: an event compares a dozen of
// them, and each == of strings of the same length calls a function that compares bytes.
func equal(a, b string) bool {
	return len(a) == len(b) && (len(a) == 0 || unsafe.StringData(a) == unsafe.StringData(b) || a == b)
}

// attributes returns the attributes of a series of the instrument, without those of its source.
func (k *key) attributes(i instrument, extra []attribute.KeyValue) []attribute.KeyValue {
	attrs := slices.Clone(extra) // first, because the last of two attributes with the same name counts
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

// A series is one combination of attributes of one instrument. Its options hold the attributes. They are made once, so
// that recording allocates nothing.
type series struct {
	record  []metric.RecordOption
	observe []metric.ObserveOption
	count   atomic.Int64              // of events; what histograms record is in the SDK
	span    atomic.Pointer[spanStart] // nil until there is a span
}

func newSeries(attrs ...attribute.KeyValue) *series {
	o := metric.WithAttributeSet(attribute.NewSet(withSendable(attrs)...))
	return &series{record: []metric.RecordOption{o}, observe: []metric.ObserveOption{o}}
}

// A source has the series of one [pipeline.Source].
type source struct {
	id      pipeline.Source
	tables  [instrumentCount]table
	limiter atomic.Pointer[limiterSeries] // nil until the first measurement
	circuit atomic.Pointer[circuitSeries] // nil for a circuit that was never seen open
	removed bool                          // forget has removed the source; guarded by the mutex of the set
}

// A table has the series of one source and instrument. It is read without a lock.
type table struct {
	first    atomic.Pointer[entry] // the first plain series, which nearly all events are for, or else the first one
	all      atomic.Pointer[map[key]*series]
	overflow atomic.Pointer[series] // for the keys beyond the limit
}

// An entry is a series with its key.
type entry struct {
	key    key
	series *series
	plain  bool // the series of a successful first attempt without attributes of Enrich
}

// find returns the series of k, or nil.
func (t *table) find(k *key) *series {
	if first := t.first.Load(); first != nil && first.key.equals(k) {
		return first.series
	}
	return t.kept()[*k]
}

// kept returns the series within the limit. The map must not be changed.
func (t *table) kept() map[key]*series {
	if all := t.all.Load(); all != nil {
		return *all
	}
	return nil
}

// A seriesSet has the series of all sources. The maps that executions read are not changed but replaced, with the mutex
// held: once every pipeline has been used there are few changes.
//
// The quotas bound the series of the sources that have not been removed. If a quota is full, events that would need
// another series count in the overflow of the table or of the set. An execution that has found a source before forget
// removes it still counts there. That count is no longer exported, and does not change a quota.
type seriesSet struct {
	sources  atomic.Pointer[map[pipeline.Source]*source]
	cache    [256]atomic.Pointer[source] // some of the sources, by slot
	overflow *source                     // for the sources beyond the limit

	quotas       [instrumentCount]quota
	requestQuota quota // of the series of requests to rate limiters
	circuitQuota quota

	leases metric.Float64Histogram // of lease durations

	mu      sync.Mutex
	limit   int                                    // of the sources, and of each quota
	inForce map[pipeline.Source]map[string]circuit // the circuits of the pipelines of registries, by strategy
}

// overflowName is the pipeline.name of the sources beyond the limit. A series must not have otel.metric.overflow alone:
// once the SDK has that one, it takes it for its own, and puts all new series of the histogram into it.
const overflowName = "_OTHER"

// A quota is a number of series that has a limit. It is changed with the mutex of the set held.
type quota struct {
	limit int
	used  int
	full  atomic.Bool // used >= limit; read without the mutex
}

// add changes the number of series by n, which can be negative.
func (q *quota) add(n int) {
	q.used += n
	q.full.Store(q.used >= q.limit)
}

func (s *seriesSet) init(limit int, leases metric.Float64Histogram) {
	s.limit, s.leases = limit, leases
	for i := range s.quotas {
		s.quotas[i].limit = limit
	}
	s.requestQuota.limit, s.circuitQuota.limit = limit, limit
	s.overflow = &source{id: pipeline.Source{Pipeline: overflowName}}
	s.sources.Store(&map[pipeline.Source]*source{})
	s.inForce = map[pipeline.Source]map[string]circuit{}
}

// source returns the source of id, or the overflow beyond the limit.
func (s *seriesSet) source(id *pipeline.Source) *source {
	if found := s.cache[slot(id)].Load(); found != nil &&
		equal(found.id.Strategy, id.Strategy) && equal(found.id.Pipeline, id.Pipeline) && equal(found.id.Instance, id.Instance) {
		return found
	}
	if found := (*s.sources.Load())[*id]; found != nil {
		return found
	}
	return s.addSource(*id)
}

// slot is a weak hash that takes a quarter of the time of a map's. A collision costs a look into the map. It reads the
// text of the names and not their addresses, because after a reload the same names have other addresses.
func slot(id *pipeline.Source) uint8 {
	return ends(id.Pipeline) + 3*ends(id.Instance) + 7*ends(id.Strategy)
}

// ends is a hash of the length and the two ends of s.
func ends(s string) uint8 {
	if s == "" {
		return 0
	}
	return uint8(len(s)) + 5*s[0] + 11*s[len(s)-1]
}

func (s *seriesSet) addSource(id pipeline.Source) *source {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := *s.sources.Load()
	if found := all[id]; found != nil {
		return found
	}
	if len(all) >= s.limit {
		return s.overflow
	}
	added := &source{id: id}
	changed := maps.Clone(all)
	changed[id] = added
	s.sources.Store(&changed)
	s.cache[slot(&id)].CompareAndSwap(nil, added)
	return added
}

// each calls f for every source and for the overflow.
func (s *seriesSet) each(f func(*source)) {
	for _, src := range *s.sources.Load() {
		f(src)
	}
	f(s.overflow)
}

// seriesFor returns the series of the instrument for k, and adds it if there is none. If the quota is full, it
// returns the overflow. extra are the attributes that k.extra stands for.
func (s *seriesSet) seriesFor(src *source, i instrument, k *key, extra []attribute.KeyValue) *series {
	t := &src.tables[i]
	if found := t.find(k); found != nil {
		return found
	}
	if o := t.overflow.Load(); o != nil && (src == s.overflow || s.quotas[i].full.Load()) {
		return o
	}
	return s.add(src, i, k, extra)
}

// seriesWithin is seriesFor without extra, but returns nil in place of the overflow.
func (s *seriesSet) seriesWithin(src *source, i instrument, k *key) *series {
	s.seriesFor(src, i, k, nil)
	return src.tables[i].find(k)
}

func (s *seriesSet) add(src *source, i instrument, k *key, extra []attribute.KeyValue) *series {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &src.tables[i]
	if found := t.find(k); found != nil {
		return found
	}
	if src == s.overflow || s.quotas[i].full.Load() {
		return t.overflowOf(src.id)
	}
	added := newSeries(appendSource(k.attributes(i, extra), src.id)...)
	t.put(k, added)
	if !src.removed {
		s.quotas[i].add(1)
	}
	return added
}

// put adds a series. The caller holds the mutex of the set.
func (t *table) put(k *key, added *series) {
	changed := map[key]*series{*k: added}
	maps.Copy(changed, t.kept())
	t.all.Store(&changed)
	plain := k.errorType == "" && k.extra == attribute.Distinct{} && k.attempt == 0 && !k.handled
	if first := t.first.Load(); first == nil || plain && !first.plain {
		t.first.Store(&entry{key: *k, series: added, plain: plain})
	}
}

// overflowOf returns the overflow of the table, which belongs to the source id. It is called with the mutex of the set
// held.
func (t *table) overflowOf(id pipeline.Source) *series {
	if o := t.overflow.Load(); o != nil {
		return o
	}
	o := newSeries(appendSource([]attribute.KeyValue{attribute.Bool(keyOverflow, true)}, id)...)
	t.overflow.Store(o)
	return o
}

// outlives reports whether the series of that event stays when its pipeline is removed: a reader such as Prometheus comes
// later than the last execution ends, and would never see that the pipeline was removed or not closed cleanly.
func outlives(event string) bool { return event == "OnPipelineRemoved" || event == "DisposeFailed" }

// outliving returns a source that has only the series of src that outlive the pipeline, or nil if there are none.
func (src *source) outliving() (left *source) {
	for k, s := range src.tables[events].kept() {
		if !outlives(k.event) {
			continue
		}
		if left == nil {
			left = &source{id: src.id}
		}
		left.tables[events].put(&k, s)
	}
	return left
}

// forget removes the sources of the pipeline and instance of id, or only one of them if id has a strategy. Series that
// outlive the pipeline stay.
func (s *seriesSet) forget(id pipeline.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id.Strategy == "" {
		delete(s.inForce, id)
	}
	left := maps.Clone(*s.sources.Load())
	for name, src := range left {
		if name.Pipeline != id.Pipeline || name.Instance != id.Instance || id.Strategy != "" && name.Strategy != id.Strategy {
			continue
		}
		delete(left, name)
		src.removed = true
		s.cache[slot(&name)].CompareAndSwap(src, nil)
		for i := range src.tables {
			s.quotas[i].add(-len(src.tables[i].kept()))
		}
		s.forgetRequests(src)
		s.forgetCircuit(src)
		if o := src.outliving(); o != nil {
			left[name] = o
			s.quotas[events].add(len(o.tables[events].kept()))
		}
	}
	s.sources.Store(&left)
}

// each calls f for every series of the table.
func (t *table) each(f func(*series)) {
	for _, s := range t.kept() {
		f(s)
	}
	if o := t.overflow.Load(); o != nil {
		f(o)
	}
}
