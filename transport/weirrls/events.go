package weirrls

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weir-go/weir/internal/recovered"
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

// listens reports whether the Listener takes events and measurements of a request. A panic of Enabled is logged.
func (e *events) listens(ctx context.Context) (listening, measuring bool) {
	if e.OnEvent == nil && e.OnMeasurement == nil {
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
func (e *events) report(d *decision) {
	for i := range d.checks {
		if c := &d.checks[i]; c.asked {
			e.reportCheck(d, c)
		}
	}
}

func (e *events) reportCheck(d *decision, c *check) {
	defer rescueListener()
	source := c.limit.source
	if c.rule != nil && c.rule.names != nil {
		source.Strategy = d.domain.nameWithValues(c.rule, c.descriptor)
	}
	rejects := d.over && !c.limit.Shadow
	err := c.error(source, !rejects)
	if d.measuring {
		m := pipeline.Event{Name: ratelimit.MeasureRequest, Source: source, Duration: c.took, Err: err}
		// What a request takes it does not hold, so a grant ends at once.
		if ended := e.OnMeasurement(d.ctx, m); ended != nil && err == nil {
			ended(d.ctx, pipeline.Event{Name: ratelimit.MeasureLease, Source: source})
		}
	}
	if name, severity := c.event(rejects); name != "" && e.OnEvent != nil {
		e.OnEvent(d.ctx, pipeline.Event{
			Name: name, Severity: severity, Source: source, Operation: pipeline.Operation(d.ctx), Err: err,
		})
	}
}

// error returns the error for the Listener: a [ratelimit.RejectedError] if the limiter has decided.
func (c *check) error(source pipeline.Source, shadow bool) error {
	switch {
	case c.err != nil:
		return fmt.Errorf("weirrls: limit %s: %w", source.Strategy, c.err)
	case c.verdict != within:
		lease := c.hits.rejection()
		return &ratelimit.RejectedError{Reason: lease.Reason(), Source: source, Lease: lease, Shadow: shadow}
	default:
		return nil
	}
}

// event returns the event about c, or "" if there is none. A limit of the request that is over, but does not reject it,
// has the event of a shadow: its own or the service's Shadow, or other quotas that are left.
func (c *check) event(rejects bool) (name string, severity pipeline.Severity) {
	switch {
	case c.verdict == within:
		return "", pipeline.SeverityNone
	case !c.over():
		return EventFailedOpen, pipeline.SeverityWarning
	case c.err != nil && rejects:
		return EventFailed, pipeline.SeverityError
	case c.err != nil:
		return ratelimit.EventShadowError, pipeline.SeverityWarning
	case !rejects:
		return ratelimit.EventShadowRejected, pipeline.SeverityWarning
	case c.limit.Limiter != nil:
		return ratelimit.EventRejected, pipeline.SeverityError
	default:
		return ratelimit.EventRejected, pipeline.SeverityWarning // a client over its quota is no fault of the program
	}
}

// The bounds on names of events that have values of descriptors. Clients choose those values, and a backend of metrics keeps
// every name.
const (
	maxValueNames   = 1000 // for a rule
	maxValueNameLen = 256  // in bytes
)

// A nameSet has the names that were used for the events of a rule.
type nameSet struct {
	mu    sync.Mutex
	names map[string]bool
}

// admits reports whether the name was used or can be, because there are not too many others.
func (s *nameSet) admits(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.names[name]:
		return true
	case len(s.names) >= maxValueNames:
		return false
	case s.names == nil:
		s.names = make(map[string]bool)
	}
	s.names[name] = true
	return true
}

// nameWithValues returns the name of the events of a rule with the values of a descriptor that it has matched.
func (d *domain) nameWithValues(of *rule, descriptor *common.RateLimitDescriptor) string {
	var parts []string
	at := &d.level
	for _, e := range descriptor.GetEntries() {
		r, byPattern := at.find(e)
		if r == nil {
			break // cannot happen: the descriptor was matched
		}
		value := r.counterValue(e, byPattern)
		switch {
		case of.allValues || r.valueToMetric:
		case byPattern:
			value = r.sharedValue(e.GetKey())
		case r.name == e.GetKey(): // a rule without a value
			value = ""
		}
		parts = append(parts, ruleName(e.GetKey(), value))
		at = &r.level
	}
	name := strings.Join(parts, ".")
	if len(name) > maxValueNameLen || !of.names.admits(name) {
		return of.path
	}
	return name
}
