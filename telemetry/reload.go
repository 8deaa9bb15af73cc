package telemetry

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Status is how loading the configuration went. The zero Status is that of a
// program that has loaded none.
type Status struct {
	LastAttempt time.Time // when it was loaded the last time, whatever came of it
	LastSuccess time.Time // when it could be loaded the last time
	LastError   error     // why the last attempt failed; nil: it did not
	Successes   int64
	Failures    int64
}

// reloads has the Status, and what is exported of it.
type reloads struct {
	mu     sync.Mutex
	status Status
}

// ConfigReloaded says that a configuration was loaded at that time, the first one
// included; err is why it could not be, or nil. Whoever watches a configuration
// file calls it.
func (t *Telemetry) ConfigReloaded(at time.Time, err error) {
	t.reloads.mu.Lock()
	defer t.reloads.mu.Unlock()
	s := &t.reloads.status
	s.LastAttempt, s.LastError = at, err
	if err != nil {
		s.Failures++
		return
	}
	s.Successes++
	s.LastSuccess = at
}

// Status returns how loading the configuration went so far.
func (t *Telemetry) Status() Status {
	t.reloads.mu.Lock()
	defer t.reloads.mu.Unlock()
	return t.reloads.status
}

var (
	reloadSuccess = observeResult("success")
	reloadFailure = observeResult("failure")
)

func observeResult(result string) metric.ObserveOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(keyResult, result)))
}

func (r *reloads) observe(o metric.Observer, i *instruments) {
	r.mu.Lock()
	s := r.status
	r.mu.Unlock()
	if s.Successes+s.Failures == 0 {
		return // the program may have no configuration file
	}
	o.ObserveInt64(i.reloads, s.Successes, reloadSuccess)
	o.ObserveInt64(i.reloads, s.Failures, reloadFailure)
	successful := int64(0)
	if s.LastError == nil {
		successful = 1
	}
	o.ObserveInt64(i.reloadOK, successful)
	if s.Successes > 0 {
		o.ObserveFloat64(i.reloadOKTime, float64(s.LastSuccess.UnixMilli())/1000)
	}
}
