package weirrls

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/internal/admission"
)

// The events of this package, in addition to those of strategies/ratelimit.
const (
	// EventFailed: a limiter could not decide, and the request is over the limit. Err has the cause. Its severity is
	// Error.
	EventFailed = admission.EventFailed
	// EventFailedOpen: a limiter could not decide or could not take hits back, and does not reject the request. Err has
	// the cause. Its severity is Warning.
	EventFailedOpen = admission.EventFailedOpen
)

// overrideName is the name of the strategy for limits that requests bring with them.
const overrideName = "override"

// events are the Listener of a service.
type events struct{ pipeline.Hooks }

func newEvents(l pipeline.Listener) events { return events{pipeline.HooksOf(l)} }

// none reports whether nothing is reported.
func (e *events) none() bool { return e.OnEvent == nil && e.OnMeasurement == nil }

// listens reports whether the Listener takes events and measurements of a request. A panic of Enabled is logged.
func (e *events) listens(ctx context.Context) (listening, measuring bool) {
	if e.none() {
		return false, false
	}
	defer rescueListener()
	if e.Enabled != nil && !e.Enabled(ctx) {
		return false, false
	}
	return true, e.OnMeasurement != nil
}

// rescueListener is deferred. It recovers a panic of a Listener, and logs it.
func rescueListener() {
	if p := recover(); p != nil {
		recovered.Report("weirrls: Listener", p, debug.Stack())
	}
}

// report tells the Listener about each limit that was asked.
func (d *decision) report() {
	if !d.listening {
		return
	}
	for i := range d.checks {
		if c := &d.checks[i]; c.asked {
			d.reportCheck(i, c)
		}
	}
}

// reportCheck tells the Listener about one limit.
func (d *decision) reportCheck(i int, c *check) {
	defer rescueListener()
	source := c.limit.source
	if c.rule != nil && (c.rule.namesAllValues || c.rule.namesValues) {
		source.Strategy = d.nameWithValues(c, d.request.GetDescriptors()[i].GetEntries())
	}
	err := d.errorOf(c, source)
	if d.measuring {
		d.measure(c, source, err)
	}
	if name, severity := d.eventOf(c); name != "" && d.service.events.OnEvent != nil {
		d.service.events.OnEvent(d.ctx, pipeline.Event{
			Name: name, Severity: severity, Source: source, Operation: pipeline.Operation(d.ctx), Err: err,
		})
	}
}

// measure reports how long the limiter took. What a request takes it does not hold, so a grant ends at once.
func (d *decision) measure(c *check, source pipeline.Source, err error) {
	e := pipeline.Event{Name: ratelimit.MeasureRequest, Source: source, Duration: c.took, Err: err}
	if ended := d.service.events.OnMeasurement(d.ctx, e); ended != nil && err == nil {
		ended(d.ctx, pipeline.Event{Name: ratelimit.MeasureLease, Source: source})
	}
}

// errorOf returns the error for the Listener: a [ratelimit.RejectedError] if the limiter has decided.
func (d *decision) errorOf(c *check, source pipeline.Source) error {
	switch {
	case c.err != nil:
		return fmt.Errorf("weirrls: limit %s: %w", source.Strategy, c.err)
	case c.kind == exact && !c.negative && !c.lease.Acquired():
		return &ratelimit.RejectedError{Reason: c.lease.Reason(), Source: source, Lease: c.lease, Shadow: !d.rejects(c)}
	case c.kind != exact && c.over():
		lease := custom.RejectedKnowing(d.windowReset(c), "", 0)
		return &ratelimit.RejectedError{Source: source, Lease: lease, Shadow: !d.rejects(c)}
	default:
		return nil
	}
}

// rejects reports whether c, which is over, rejects the request.
func (d *decision) rejects(c *check) bool { return d.over && !c.limit.Shadow }

// eventOf returns the event about c, or "" if there is none. A limit of the request that is over, but does not reject it,
// has the event of a shadow: its own or the service's Shadow, or other quotas that are left.
func (d *decision) eventOf(c *check) (name string, severity pipeline.Severity) {
	rejects := d.rejects(c)
	switch {
	case c.answer == within && c.err == nil:
		return "", pipeline.SeverityNone
	case c.answer == failedOpen:
		return EventFailedOpen, pipeline.SeverityWarning
	case c.err != nil && rejects:
		return EventFailed, pipeline.SeverityError
	case c.err != nil:
		return ratelimit.EventShadowError, pipeline.SeverityWarning
	case !rejects:
		return ratelimit.EventShadowRejected, pipeline.SeverityWarning
	case c.kind == exact && c.limit.Limiter != nil:
		return ratelimit.EventRejected, pipeline.SeverityError
	default:
		return ratelimit.EventRejected, pipeline.SeverityWarning // a client over its quota is no fault of the program
	}
}
