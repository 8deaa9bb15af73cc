package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// buckets are the bounds of the buckets of all histograms, in seconds. The semantic conventions advise bounds that begin at
// 5 ms for requests. A limiter answers within microseconds and a gateway within 0.3 ms: with those bounds, one that becomes
// ten times slower would look the same.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// instruments are all instruments. Histograms are recorded at once; the others are read by [Telemetry.observe].
type instruments struct {
	executions, attempts, leases, queueTime, httpRequests metric.Float64Histogram

	events, requests, reloads metric.Int64ObservableCounter
	active                    metric.Int64ObservableUpDownCounter
	available, queued         metric.Int64ObservableGauge
	circuits                  metric.Int64ObservableGauge
	storeAvailable            metric.Int64ObservableGauge
	storeCalls                metric.Int64ObservableCounter
	storeDecisions            metric.Int64ObservableCounter
	reloadOK                  metric.Int64ObservableGauge
	reloadOKTime              metric.Float64ObservableGauge
	queueLongest, httpLongest metric.Float64ObservableGauge

	histograms  []metric.Float64Histogram // the histograms that can record
	observables []metric.Observable       // all but the histograms
}

// make makes the instruments of m. If leases is false, the histogram of lease durations records nothing.
func (i *instruments) make(m metric.Meter, leases bool) error {
	f := factory{meter: m}
	i.executions = f.histogram("weir.pipeline.duration", "How long an execution of a pipeline took.")
	i.attempts = f.histogram("weir.attempt.duration", "How long one attempt of an execution took.")
	i.queueTime = f.histogram("weir.rate_limiter.queue.duration", "How long a request waited for the answer of a rate limiter, if it waited.")
	i.leases = noop.Float64Histogram{}
	if leases {
		i.leases = f.histogram("weir.rate_limiter.lease.duration", "How long an execution held permits of a rate limiter.")
	}
	i.httpRequests = f.histogram("http.server.request.duration", "Duration of HTTP server requests.")
	i.queueLongest = f.floatGauge("weir.rate_limiter.queue.max_duration", "s", "The longest wait for the answer of a rate limiter in the last minute.")
	i.httpLongest = f.floatGauge("weir.http.server.request.max_duration", "s", "The longest HTTP server request that has ended in the last minute.")
	i.events = f.counter("weir.strategy.events", "{event}", "How many events were reported.")
	i.requests = f.counter("weir.rate_limiter.requests", "{request}", "How many requests for permits a rate limiter has answered.")
	i.reloads = f.counter("weir.config.reloads", "{reload}", "How many times a configuration was loaded.")
	i.active = f.upDownCounter("weir.rate_limiter.lease.active", "{lease}", "How many executions hold permits of a rate limiter.")
	i.available = f.gauge("weir.rate_limiter.permit.available", "{permit}", "How many permits of a limiter could be taken now.")
	i.queued = f.gauge("weir.rate_limiter.queue.active", "{permit}", "How many permits the requests in the queue of a limiter ask for.")
	i.circuits = f.gauge("weir.circuit_breaker.state", "", "1 for the state that a circuit is in, 0 for the others.")
	i.storeAvailable = f.gauge("weir.store.available", "", "1 while the store of shared limiters can be asked, else 0.")
	i.storeCalls = f.counter("weir.store.calls", "{call}", "How many round trips to the store of shared limiters were made.")
	i.storeDecisions = f.counter("weir.store.decisions", "{decision}", "How many answers shared limiters have given.")
	// No unit: "1" would be exported to Prometheus with the suffix _ratio.
	i.reloadOK = f.gauge("weir.config.last_reload.successful", "", "1 if the last attempt to load a configuration was successful, else 0.")
	i.reloadOKTime = f.floatGauge("weir.config.last_reload.success.timestamp", "s", "The time of the last successful attempt to load a configuration, in seconds since 1970.")
	i.histograms = withoutNoop(i.executions, i.attempts, i.queueTime, i.leases, i.httpRequests)
	i.observables = f.observables
	return errors.Join(f.errs...)
}

// withoutNoop returns the histograms that can record, so that recording does not call Enabled of the others, which
// takes as long.
func withoutNoop(all ...metric.Float64Histogram) []metric.Float64Histogram {
	var kept []metric.Float64Histogram
	for _, h := range all {
		if _, never := h.(noop.Float64Histogram); !never {
			kept = append(kept, h)
		}
	}
	return kept
}

// recording reports whether any of the histograms is read.
func (i *instruments) recording(ctx context.Context) bool {
	for _, h := range i.histograms {
		if h.Enabled(ctx) {
			return true
		}
	}
	return false
}

// A factory makes instruments. It collects the errors, and the instruments that [Telemetry.observe] exports.
type factory struct {
	meter       metric.Meter
	observables []metric.Observable
	errs        []error
}

func (f *factory) histogram(name, description string) metric.Float64Histogram {
	h, err := f.meter.Float64Histogram(name,
		metric.WithDescription(description), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(buckets...))
	f.errs = append(f.errs, err)
	return h
}

func (f *factory) counter(name, unit, description string) metric.Int64ObservableCounter {
	c, err := f.meter.Int64ObservableCounter(name, metric.WithDescription(description), metric.WithUnit(unit))
	f.observed(c, err)
	return c
}

func (f *factory) upDownCounter(name, unit, description string) metric.Int64ObservableUpDownCounter {
	c, err := f.meter.Int64ObservableUpDownCounter(name, metric.WithDescription(description), metric.WithUnit(unit))
	f.observed(c, err)
	return c
}

func (f *factory) gauge(name, unit, description string) metric.Int64ObservableGauge {
	g, err := f.meter.Int64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit(unit))
	f.observed(g, err)
	return g
}

func (f *factory) floatGauge(name, unit, description string) metric.Float64ObservableGauge {
	g, err := f.meter.Float64ObservableGauge(name, metric.WithDescription(description), metric.WithUnit(unit))
	f.observed(g, err)
	return g
}

func (f *factory) observed(made metric.Observable, err error) {
	f.observables, f.errs = append(f.observables, made), append(f.errs, err)
}
