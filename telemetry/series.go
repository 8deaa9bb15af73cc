package telemetry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-go/weir/pipeline"
)

// A series is one combination of attributes of the instruments that have the same attributes.
type series struct {
	attributes metric.MeasurementOption
	record     []metric.RecordOption // the attributes; made once, so that recording allocates nothing
	count      atomic.Int64          // what histograms record is in the SDK
	longest    longest
	span       atomic.Pointer[spanStart]             // nil until there is a span
	ended      func(context.Context, pipeline.Event) // of leases: counts the end of one
}

// A spanStart has what the spans of one series have in common, so that the option with the attributes is made once.
type spanStart struct {
	name       string
	attributes trace.SpanStartEventOption
}

func newSeries(attrs []attribute.KeyValue) *series {
	o := with(attrs...)
	return &series{attributes: o, record: []metric.RecordOption{o}}
}

// with returns the option for the attributes.
func with(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(withSendable(attrs)...))
}

// A seriesSet has the series of the instruments that have the same attributes, by key. It has at most limit series; keys beyond the
// limit have common series: at most limit more, and a last one for all others. The maps are not changed but replaced, with the mutex
// held, so that they are read without it: once every pipeline has been used there are few changes.
//
// An execution that has found a series before it was forgotten still counts there. That count is no longer exported.
type seriesSet[K comparable] struct {
	limit  int
	labels func(K) []attribute.KeyValue
	common func(k K, last bool) K // the key of the common series for k
	made   func(*series)          // is called with each new series, unless it is nil

	mu          sync.Mutex
	own, shared atomic.Pointer[map[K]*series]
}

func (s *seriesSet[K]) init(limit int, labels func(K) []attribute.KeyValue, common func(K, bool) K) {
	s.limit, s.labels, s.common = limit, labels, common
	s.own.Store(&map[K]*series{})
	s.shared.Store(&map[K]*series{})
}

// get returns the series of k, and adds it if there is none. The attributes of a new series that is not common are more, and those of
// the key.
func (s *seriesSet[K]) get(k K, more []attribute.KeyValue) *series {
	if found := s.find(k); found != nil {
		return found
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(k, more)
}

// find returns the series of k, or nil if there is none yet.
func (s *seriesSet[K]) find(k K) *series {
	own := *s.own.Load()
	if found := own[k]; found != nil || len(own) < s.limit {
		return found
	}
	shared := *s.shared.Load()
	if found := shared[s.common(k, false)]; found != nil || len(shared) < s.limit {
		return found
	}
	return shared[s.common(k, true)]
}

// add is get for a caller that holds the mutex.
func (s *seriesSet[K]) add(k K, more []attribute.KeyValue) *series {
	if found := s.find(k); found != nil {
		return found
	}
	of := &s.own
	if len(*s.own.Load()) >= s.limit {
		of = &s.shared
		k, more = s.common(k, len(*s.shared.Load()) >= s.limit), nil
	}
	// The last of two attributes with the same name counts.
	added := newSeries(append(slices.Clone(more), s.labels(k)...))
	if s.made != nil {
		s.made(added)
	}
	changed := maps.Clone(*of.Load())
	changed[k] = added
	of.Store(&changed)
	return added
}

// addBelow adds the series of the keys, unless the set has reached a part of the limit.
func (s *seriesSet[K]) addBelow(part int, keys ...K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if len(*s.own.Load()) < part {
			s.add(k, nil)
		}
	}
}

// remove removes the series of the keys for which f returns true.
func (s *seriesSet[K]) remove(f func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range []*atomic.Pointer[map[K]*series]{&s.own, &s.shared} {
		left := maps.Clone(*of.Load())
		maps.DeleteFunc(left, func(k K, _ *series) bool { return f(k) })
		of.Store(&left)
	}
}

// each is an iterator over the series.
func (s *seriesSet[K]) each(yield func(*series) bool) {
	for _, of := range []map[K]*series{*s.own.Load(), *s.shared.Load()} {
		for _, each := range of {
			if !yield(each) {
				return
			}
		}
	}
}
