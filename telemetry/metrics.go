package telemetry

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weir-go/weir/pipeline"
)

// maxAttempt is the highest attempt.number of metrics. Later attempts count as this one, because a retry without a
// limit on its attempts would make a series for each of them.
const maxAttempt = 100

// overflowName is the pipeline.name of the last common series. A series must not have otel.metric.overflow alone: once the SDK has
// that one, it takes it for its own, and puts all new series of the histogram into it.
const overflowName = "_OTHER"

// A key tells apart the series of events and of rate limiters. A field that its instrument has no attribute for is zero.
type key struct {
	source    pipeline.Source
	event     string
	severity  pipeline.Severity
	operation string
	errorType string
	result    string // of a request for permits
	attempt   int
	handled   bool
	common    bool
	extra     attribute.Distinct // the attributes that Enrich added
}

// labels returns the attributes of k for an instrument that has these.
func (k key) labels(names []attribute.Key) (attrs []attribute.KeyValue) {
	if k.common {
		attrs = append(appendSource(attrs, k.source), attribute.Bool(keyOverflow, true))
		return appendString(attrs, keyResult, k.result)
	}
	for _, name := range names {
		switch name {
		case keyEvent:
			attrs = append(attrs, name.String(k.event))
		case keySeverity:
			attrs = append(attrs, name.String(k.severity.String()))
		case keyPipeline:
			attrs = appendString(attrs, name, k.source.Pipeline)
		case keyInstance:
			attrs = appendString(attrs, name, k.source.Instance)
		case keyStrategy:
			attrs = appendString(attrs, name, k.source.Strategy)
		case keyOperation:
			attrs = appendString(attrs, name, k.operation)
		case keyErrorType:
			attrs = appendString(attrs, name, k.errorType)
		case keyResult:
			attrs = append(attrs, name.String(k.result))
		case keyAttempt:
			attrs = append(attrs, name.Int(k.attempt))
		case keyHandled:
			attrs = append(attrs, name.Bool(k.handled))
		}
	}
	return attrs
}

// commonEvent returns the key of the common series of the source of k.
func (k key) commonEvent(last bool) key {
	if last || k.source == (pipeline.Source{}) {
		return key{source: pipeline.Source{Pipeline: overflowName}, common: true}
	}
	return key{source: k.source, common: true}
}

// commonResult returns the key of the common series of the requests with the result of k, or of the leases.
func (k key) commonResult(bool) key {
	return key{source: pipeline.Source{Pipeline: overflowName}, result: k.result, common: true}
}

// A requestKey tells apart the series of HTTP requests.
type requestKey struct {
	method, scheme, route string
	status                int
	errorType             string
	common                bool
}

func (k requestKey) labels() []attribute.KeyValue {
	attrs := appendString(nil, keyMethod, k.method)
	attrs = appendString(attrs, keyScheme, k.scheme)
	attrs = appendString(attrs, keyRoute, k.route)
	if k.status != 0 {
		attrs = append(attrs, attribute.Int(keyStatus, k.status))
	}
	if k.common {
		attrs = append(attrs, attribute.Bool(keyOverflow, true))
	}
	return appendString(attrs, keyErrorType, k.errorType)
}

// commonClass returns the key of the common series of the requests with a status of the class of that of k.
func (k requestKey) commonClass(bool) requestKey {
	class := max(0, min(k.status/100, 5))
	common := requestKey{status: 100 * class, common: true}
	if class == 0 {
		common.errorType = "_OTHER" // what the semantic conventions have for errors without a type
	}
	return common
}

// metrics count the events of pipelines and the requests to rate limiters.
type metrics struct {
	instruments

	executions, attempts, events, requests, leases seriesSet[key]

	circuits circuits

	mu      sync.Mutex
	removed []pipeline.Source // the pipelines that were removed last, the oldest first
}

func (m *metrics) init(maxSeries int) {
	for instrument, s := range map[int]*seriesSet[key]{
		executions: &m.executions, attempts: &m.attempts, events: &m.events, requests: &m.requests, leases: &m.leases,
	} {
		common := key.commonEvent
		if instrument == requests || instrument == leases {
			common = key.commonResult
		}
		s.init(maxSeries, func(k key) []attribute.KeyValue { return k.labels(table[instrument].attributes) }, common)
	}
	m.leases.made = m.makeLease
	m.circuits.init(maxSeries)
}

// observe exports the counters.
func (m *metrics) observe(o observation) {
	for s := range m.events.each {
		o.int(events, s.count.Load(), s.attributes)
	}
	for s := range m.requests.each {
		o.int(requests, s.count.Load(), s.attributes)
		o.float(queueLongest, s.longest.now().Seconds(), s.attributes)
	}
	for s := range m.leases.each {
		o.int(leases, max(0, s.count.Load()), s.attributes)
	}
	m.circuits.observe(o)
}

// seriesOf returns the instrument that counts e, its series, and the key of e.
func (m *metrics) seriesOf(e *pipeline.Event, errorType string, extra []attribute.KeyValue) (instrument int, of *seriesSet[key], k key) {
	k = key{source: e.Source, operation: e.Operation, errorType: errorType}
	if extra != nil {
		set := attribute.NewSet(slices.Clone(extra)...) // NewSet sorts its arguments in place
		k.extra = set.Equivalent()
	}
	switch e.Name {
	case pipeline.EventPipelineExecuted:
		// Neither the event nor its severity is an attribute: they are the same for every execution, and each
		// attribute makes each recording slower.
		return executions, &m.executions, k
	case pipeline.EventExecutionAttempt:
		k.severity, k.attempt, k.handled = e.Severity, min(e.Attempt, maxAttempt), e.Handled
		return attempts, &m.attempts, k
	default:
		k.event, k.severity = e.Name, e.Severity
		return events, &m.events, k
	}
}

// count records e in the metrics.
func (m *metrics) count(ctx context.Context, e *pipeline.Event, errorType string, extra []attribute.KeyValue) {
	instrument, of, k := m.seriesOf(e, errorType, extra)
	s := of.get(k, extra)
	if instrument != events {
		m.histograms[instrument].Record(ctx, e.Duration.Seconds(), s.record...)
		return
	}
	s.count.Add(1)
	m.circuits.report(e)
}

// forget removes the series of the pipeline and instance of id, or only those of one strategy if id has one. Two events outlive the
// pipeline: a reader such as Prometheus comes later than the last execution ends, and would never see that the pipeline was removed or
// not closed cleanly. They stay until as many pipelines as a tenth of the limit were removed later: otherwise they would take up the
// limit one by one, and leave no series to new pipelines.
func (m *metrics) forget(id pipeline.Source) {
	of := func(s pipeline.Source) bool {
		return withoutStrategy(s) == withoutStrategy(id) && (id.Strategy == "" || s.Strategy == id.Strategy)
	}
	outlives := func(k key) bool { return k.event == "OnPipelineRemoved" || k.event == "DisposeFailed" }
	for _, set := range []*seriesSet[key]{&m.executions, &m.attempts, &m.events, &m.requests, &m.leases} {
		set.remove(func(k key) bool { return of(k.source) && !outlives(k) })
	}
	m.circuits.forget(id)
	if id.Strategy != "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = append(slices.DeleteFunc(m.removed, of), id)
	if n := len(m.removed) - max(m.events.limit/10, 1); n > 0 {
		m.events.remove(func(k key) bool { return outlives(k) && slices.Contains(m.removed[:n], withoutStrategy(k.source)) })
		m.removed = slices.Delete(m.removed, 0, n)
	}
}
