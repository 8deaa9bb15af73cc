package weirhttp

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// The events of this package, in addition to those of strategies/ratelimit.
const (
	// EventFailed: a limiter could not decide, and the request was rejected. Err has
	// the cause. Its severity is Error.
	EventFailed = "OnRateLimiterFailed"
	// EventFailedOpen: a limiter could not decide, and the request was admitted
	// because of [Policy.FailOpen]. Its severity is Warning.
	EventFailedOpen = "OnRateLimiterFailedOpen"
	// EventTimeout: a handler has not answered within [Policy.Timeout]. Err is the
	// [*TimeoutError]. Its severity is Error. It has the name of the event of
	// strategies/timeout.
	EventTimeout = "OnTimeout"
)

// An enabler is a Listener that can decline events.
type enabler interface {
	Enabled(ctx context.Context) bool
}

// examineListener finds out what the Listener can do.
func (l *Limits) examineListener() {
	if isnil.Value(l.options.Listener) {
		l.options.Listener = nil
		return
	}
	l.measurer, _ = l.options.Listener.(pipeline.Measurer)
	l.enabler, _ = l.options.Listener.(enabler)
}

// listens reports whether the Listener takes events and measurements of a request. It is called once for a request, so
// that a Listener that is enabled while the request runs does not get the end of a measurement without its beginning.
func (l *Limits) listens(ctx context.Context) (listening, measuring bool) {
	if l.options.Listener == nil || l.enabler != nil && !l.enabler.Enabled(ctx) {
		return false, false
	}
	return true, l.measurer != nil
}

// report sends an event of the policy to the Listener.
func (c *call) report(ctx context.Context, p *preparedPolicy, name string, severity pipeline.Severity, err error) {
	if !c.listening {
		return
	}
	c.route.limits.options.Listener.OnEvent(ctx, pipeline.Event{
		Name:      name,
		Severity:  severity,
		Source:    p.source,
		Operation: pipeline.Operation(ctx),
		Err:       err,
	})
}

// measureRequest reports how long the policy took to answer. It is called when the call holds the lease, so that the
// lease is given back if the Measurer panics.
func (c *call) measureRequest(ctx context.Context, p *preparedPolicy, waited, answered time.Duration, lease limiter.Lease, err error) {
	e := pipeline.Event{Name: ratelimit.MeasureRequest, Source: p.source, Duration: waited, Err: err}
	if err == nil && !lease.Acquired() {
		e.Err = rejectedError(p, lease)
	}
	if e.Err != nil {
		c.route.limits.measurer.OnMeasurement(ctx, e)
		return
	}
	measurement := pipeline.BeginMeasurement(ctx, c.route.limits.measurer, e)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if g := &c.held[i]; g.policy == p && g.since == answered {
			g.measurement = measurement
		}
	}
}

// measureLease reports how long the permits of g were held.
func (c *call) measureLease(g *grant) {
	if c.measuring && !g.isTopUp() {
		e := pipeline.Event{Name: ratelimit.MeasureLease, Source: g.policy.source, Duration: clock.Now() - g.since}
		pipeline.EndMeasurement(c.Context, c.route.limits.measurer, e, g.measurement)
	}
}

// rejectedError returns the rejection as strategies/ratelimit reports it to listeners.
func rejectedError(p *preparedPolicy, lease limiter.Lease) *ratelimit.RejectedError {
	return &ratelimit.RejectedError{Reason: lease.Reason(), Source: p.source, Lease: lease}
}
