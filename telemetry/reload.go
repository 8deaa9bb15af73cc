package telemetry

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Status describes how loading the configuration went. The zero value is that of a program that has loaded none.
type Status struct {
	LastAttempt time.Time // the time of the last attempt
	LastSuccess time.Time // the time of the last successful attempt
	LastError   error     // the error of the last attempt; nil if it was successful
	Successes   int64
	Failures    int64
}

// reloads has the Status, and exports it.
type reloads struct {
	mu     sync.Mutex
	status Status
}

// ConfigReloaded records an attempt to load the configuration at that time, the first one included. err is nil if it was
// successful. A watcher of a configuration file calls it, such as that of package reload.
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

// Status returns how loading the configuration has gone so far.
func (t *Telemetry) Status() Status {
	t.reloads.mu.Lock()
	defer t.reloads.mu.Unlock()
	return t.reloads.status
}

var (
	reloadSuccess = newSeries(attribute.String(keyResult, "success")).observe
	reloadFailure = newSeries(attribute.String(keyResult, "failure")).observe
)

func (r *reloads) observe(o metric.Observer, i *instruments) {
	r.mu.Lock()
	s := r.status
	r.mu.Unlock()
	if s.Successes+s.Failures == 0 {
		return // the program may have no configuration file
	}
	o.ObserveInt64(i.reloads, s.Successes, reloadSuccess...)
	o.ObserveInt64(i.reloads, s.Failures, reloadFailure...)
	o.ObserveInt64(i.reloadOK, oneIfNil(s.LastError))
	if s.Successes > 0 {
		o.ObserveFloat64(i.reloadOKTime, float64(s.LastSuccess.UnixMilli())/1000)
	}
}
