package telemetry

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// reloads has how loading the configuration went.
type reloads struct {
	mu                  sync.Mutex
	successes, failures int64
	lastFailed          bool
	lastSuccess         time.Time
}

func (r *reloads) record(at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastFailed = err != nil
	if r.lastFailed {
		r.failures++
		return
	}
	r.successes++
	r.lastSuccess = at
}

func (r *reloads) observe(o observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.successes+r.failures == 0 {
		return // the program may have no configuration file
	}
	o.int(reloadCount, r.successes, with(attribute.String(keyResult, "success")))
	o.int(reloadCount, r.failures, with(attribute.String(keyResult, "failure")))
	o.bool(reloadOK, !r.lastFailed)
	if r.successes > 0 {
		o.float(reloadOKTime, float64(r.lastSuccess.UnixMilli())/1000)
	}
}
