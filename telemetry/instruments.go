package telemetry

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// The instruments, by their index in the table.
const (
	executions = iota
	attempts
	events
	requests
	queueTime
	queueLongest
	leases
	leaseTime
	available
	queued
	circuitState
	storeAvailable
	storeCalls
	storeDecisions
	httpTime
	httpLongest
	reloadCount
	reloadOK
	reloadOKTime
	instrumentCount
)

type kind int

const (
	histogram     kind = iota // recorded at once; the others are observed by [Telemetry.observe]
	counter                   // a whole number that never goes down
	upDownCounter             // a whole number
	gauge                     // a whole number
	floatGauge
)

// An instrument is a row of the table. A series has those of its attributes that apply.
type instrument struct {
	name        string
	kind        kind
	unit        string
	attributes  []attribute.Key
	description string
}

var (
	ofSource  = []attribute.Key{keyPipeline, keyInstance, keyStrategy}
	ofRequest = append(ofSource[:3:3], keyResult)
	ofHTTP    = []attribute.Key{keyMethod, keyScheme, keyRoute, keyStatus, keyErrorType}
)

// table has every instrument. docs/telemetry.md has the same table for readers. A unit of "1" would be exported to Prometheus with the
// suffix _ratio.
var table = [instrumentCount]instrument{
	executions: {
		"weir.pipeline.duration", histogram, "s", []attribute.Key{keyPipeline, keyInstance, keyOperation, keyErrorType},
		"How long an execution of a pipeline took.",
	},
	attempts: {
		"weir.attempt.duration", histogram, "s",
		[]attribute.Key{keySeverity, keyPipeline, keyInstance, keyStrategy, keyOperation, keyErrorType, keyAttempt, keyHandled},
		"How long one attempt of an execution took.",
	},
	events: {
		"weir.strategy.events", counter, "{event}",
		[]attribute.Key{keyEvent, keySeverity, keyPipeline, keyInstance, keyStrategy, keyOperation, keyErrorType},
		"How many events were reported.",
	},
	requests:       {"weir.rate_limiter.requests", counter, "{request}", ofRequest, "How many requests for permits a rate limiter has answered."},
	queueTime:      {"weir.rate_limiter.queue.duration", histogram, "s", ofRequest, "How long a request waited for the answer of a rate limiter, if it waited."},
	queueLongest:   {"weir.rate_limiter.queue.max_duration", floatGauge, "s", ofRequest, "The longest wait for the answer of a rate limiter in the last minute."},
	leases:         {"weir.rate_limiter.lease.active", upDownCounter, "{lease}", ofSource, "How many executions hold permits of a rate limiter."},
	leaseTime:      {"weir.rate_limiter.lease.duration", histogram, "s", ofSource, "How long an execution held permits of a rate limiter."},
	available:      {"weir.rate_limiter.permit.available", gauge, "{permit}", []attribute.Key{keyLimiter}, "How many permits of a limiter could be taken now."},
	queued:         {"weir.rate_limiter.queue.active", gauge, "{permit}", []attribute.Key{keyLimiter}, "How many permits the requests in the queue of a limiter ask for."},
	circuitState:   {"weir.circuit_breaker.state", gauge, "", append(ofSource[:3:3], keyState), "1 for the state that a circuit is in, 0 for the others."},
	storeAvailable: {"weir.store.available", gauge, "", []attribute.Key{keyStore, keyShard}, "1 while the store of shared limiters can be asked, else 0."},
	storeCalls:     {"weir.store.calls", counter, "{call}", []attribute.Key{keyStore, keyResult}, "How many round trips to the store of shared limiters were made."},
	storeDecisions: {"weir.store.decisions", counter, "{decision}", []attribute.Key{keyStore, keyDecidedBy}, "How many answers shared limiters have given."},
	httpTime:       {"http.server.request.duration", histogram, "s", ofHTTP, "Duration of HTTP server requests."},
	httpLongest:    {"weir.http.server.request.max_duration", floatGauge, "s", ofHTTP, "The longest HTTP server request that has ended in the last minute."},
	reloadCount:    {"weir.config.reloads", counter, "{reload}", []attribute.Key{keyResult}, "How many times a configuration was loaded."},
	reloadOK:       {"weir.config.last_reload.successful", gauge, "", nil, "1 if the last attempt to load a configuration was successful, else 0."},
	reloadOKTime: {
		"weir.config.last_reload.success.timestamp", floatGauge, "s", nil,
		"The time of the last successful attempt to load a configuration, in seconds since 1970.",
	},
}

// buckets are the bounds of the buckets of all histograms, in seconds. The semantic conventions advise bounds that begin at
// 5 ms for requests. A limiter answers within microseconds and a gateway within 0.3 ms: with those bounds, one that becomes
// ten times slower would look the same.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// instruments are those of a meter, by their index in the table. An instrument is in the array of its kind.
type instruments struct {
	histograms [instrumentCount]metric.Float64Histogram // of instruments of other kinds, and of unwanted ones, a histogram that records nothing
	ints       [instrumentCount]metric.Int64Observable
	floats     [instrumentCount]metric.Float64Observable

	enabled     []metric.Float64Histogram // the histograms that can record
	observables []metric.Observable       // all but the histograms
}

// make makes the instruments of m. If lease is false, the histogram of lease durations records nothing.
func (i *instruments) make(m metric.Meter, lease bool) error {
	var errs []error
	for n, row := range table {
		i.histograms[n] = noop.Float64Histogram{}
		if n == leaseTime && !lease {
			continue
		}
		if err := i.makeOne(m, n, row); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", row.name, err))
		}
	}
	return errors.Join(errs...)
}

func (i *instruments) makeOne(m metric.Meter, n int, row instrument) (err error) {
	description, unit := metric.WithDescription(row.description), metric.WithUnit(row.unit)
	switch row.kind {
	case histogram:
		i.histograms[n], err = m.Float64Histogram(row.name, description, unit, metric.WithExplicitBucketBoundaries(buckets...))
		// Enabled of a histogram that records nothing takes as long as that of another.
		if _, never := i.histograms[n].(noop.Float64Histogram); !never {
			i.enabled = append(i.enabled, i.histograms[n])
		}
		return err
	case counter:
		i.ints[n], err = m.Int64ObservableCounter(row.name, description, unit)
	case upDownCounter:
		i.ints[n], err = m.Int64ObservableUpDownCounter(row.name, description, unit)
	case gauge:
		i.ints[n], err = m.Int64ObservableGauge(row.name, description, unit)
	case floatGauge:
		i.floats[n], err = m.Float64ObservableGauge(row.name, description, unit)
		i.observables = append(i.observables, i.floats[n])
		return err
	}
	i.observables = append(i.observables, i.ints[n])
	return err
}

// recording reports whether any of the histograms is read.
func (i *instruments) recording(ctx context.Context) bool {
	for _, h := range i.enabled {
		if h.Enabled(ctx) {
			return true
		}
	}
	return false
}

// An observation is one collection of the counters and gauges.
type observation struct {
	metric.Observer
	*instruments
}

func (o observation) int(instrument int, n int64, attributes ...metric.ObserveOption) {
	o.ObserveInt64(o.ints[instrument], n, attributes...)
}

func (o observation) float(instrument int, n float64, attributes ...metric.ObserveOption) {
	o.ObserveFloat64(o.floats[instrument], n, attributes...)
}

// bool observes 1 for true and 0 for false.
func (o observation) bool(instrument int, is bool, attributes ...metric.ObserveOption) {
	n := int64(0)
	if is {
		n = 1
	}
	o.int(instrument, n, attributes...)
}
