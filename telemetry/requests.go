package telemetry

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-go/weir/internal/clock"
)

// RecordRequest records an HTTP request that a server has answered: http.server.request.duration of OpenTelemetry's
// semantic conventions, and the longest of the last minute. Call it through the middleware weirhttp.Measure, which says
// what the arguments are. The attributes of arguments that are "" or 0 are left out. [Options.MaxSeries] bounds the
// combinations of arguments; requests beyond it are recorded in one series for each class of status, with the x00 of the
// class and otel.metric.overflow, so that the share of successes stays right. Requests without a status have the
// error.type _OTHER there.
func (t *Telemetry) RecordRequest(ctx context.Context, method, scheme, route string, status int, errorType string, took time.Duration) {
	if !t.measuring(ctx) {
		return
	}
	s := t.requests.seriesFor(requestKey{method: method, scheme: scheme, route: route, status: status, errorType: errorType})
	t.instruments.httpRequests.Record(ctx, took.Seconds(), s.record...)
	s.longest.record(clock.Now(), took)
}

// A timedSeries is a series of durations that also has the longest of the last minute.
type timedSeries struct {
	*series
	longest longest
}

// A requestKey tells apart the series of HTTP requests.
type requestKey struct {
	method, scheme, route string
	status                int
	errorType             string
}

func (k *requestKey) attributes() []attribute.KeyValue {
	attrs := appendString(nil, keyMethod, k.method)
	attrs = appendString(attrs, keyScheme, k.scheme)
	attrs = appendString(attrs, keyRoute, k.route)
	if k.status != 0 {
		attrs = append(attrs, attribute.Int(keyStatus, k.status))
	}
	return appendString(attrs, keyErrorType, k.errorType)
}

// A requestSet has the series of HTTP requests. The map is not changed but replaced, with the mutex held: once every
// route has been used there are few changes.
type requestSet struct {
	all      atomic.Pointer[map[requestKey]*timedSeries]
	overflow [6]atomic.Pointer[timedSeries] // by the class of the status, 0 for none; nil until there is a request

	mu    sync.Mutex
	limit int
}

func (s *requestSet) init(limit int) {
	s.limit = limit
	s.all.Store(&map[requestKey]*timedSeries{})
}

// seriesFor returns the series of k, and adds it if there is none. Beyond the limit it returns an overflow.
func (s *requestSet) seriesFor(k requestKey) *timedSeries {
	all := *s.all.Load()
	if found := all[k]; found != nil {
		return found
	}
	if len(all) < s.limit {
		return s.add(k)
	}
	class := max(0, min(k.status/100, len(s.overflow)-1))
	o := &s.overflow[class]
	if o.Load() == nil {
		o.CompareAndSwap(nil, &timedSeries{series: newSeries(overflowAttributes(class)...)})
	}
	return o.Load()
}

// overflowAttributes returns the attributes of the requests beyond the limit, which are never otel.metric.overflow alone;
// see overflowName.
func overflowAttributes(class int) []attribute.KeyValue {
	common := requestKey{status: 100 * class}
	if class == 0 {
		common.errorType = "_OTHER" // what the semantic conventions have for errors without a type
	}
	return append(common.attributes(), attribute.Bool(keyOverflow, true))
}

func (s *requestSet) add(k requestKey) *timedSeries {
	s.mu.Lock()
	all := *s.all.Load()
	if all[k] != nil || len(all) >= s.limit {
		s.mu.Unlock()
		return s.seriesFor(k)
	}
	defer s.mu.Unlock()
	k.route = strings.Clone(k.route) // it can be a part of a longer string
	added := &timedSeries{series: newSeries(k.attributes()...)}
	changed := maps.Clone(all)
	changed[k] = added
	s.all.Store(&changed)
	return added
}

func (s *requestSet) observe(o metric.Observer, i *instruments) {
	now := clock.Now()
	observe := func(s *timedSeries) {
		o.ObserveFloat64(i.httpLongest, s.longest.at(now).Seconds(), s.observe...)
	}
	for _, series := range *s.all.Load() {
		observe(series)
	}
	for class := range s.overflow {
		if overflow := s.overflow[class].Load(); overflow != nil {
			observe(overflow)
		}
	}
}
