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

// The events of this package besides those of strategies/ratelimit.
const (
	// EventFailed: a limiter took no decision and the request was turned away; Err
	// says why. Error.
	EventFailed = "OnRateLimiterFailed"
	// EventFailedOpen: a limiter took no decision, and because of
	// [Policy.FailOpen] the request was let through. Warning.
	EventFailedOpen = "OnRateLimiterFailedOpen"
	// EventTimeout: a handler has not answered within [Policy.Timeout]; Err is the
	// [*TimeoutError]. Error. It is called as that of strategies/timeout.
	EventTimeout = "OnTimeout"
)

// An enabler is a Listener that may not be interested.
type enabler interface {
	Enabled(ctx context.Context) bool
}

// listen finds out what the Listener can do.
func (l *Limits) listen() {
	if isnil.Value(l.options.Listener) {
		l.options.Listener = nil
		return
	}
	l.measurer, _ = l.options.Listener.(pipeline.Measurer)
	l.chooser, _ = l.options.Listener.(enabler)
}

// hears tells whether reports and measurements of a request reach anybody. It is
// asked once for a request, so that nobody is told the end of what they did not
// hear the beginning of.
func (l *Limits) hears(ctx context.Context) (listening, measuring bool) {
	if l.options.Listener == nil || l.chooser != nil && !l.chooser.Enabled(ctx) {
		return false, false
	}
	return true, l.measurer != nil
}

func (c *call) report(ctx context.Context, p *policy, name string, severity pipeline.Severity, err error) {
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

// measureRequest measures the wait for one policy, so that it counts for the
// limiter that was really waited for. The grant of the answer, if there is one, is held already.
func (c *call) measureRequest(ctx context.Context, p *policy, waited, answered time.Duration, lease limiter.Lease, err error) {
	e := pipeline.Event{Name: ratelimit.MeasureRequest, Source: p.source, Duration: waited, Err: err}
	if err == nil && !lease.Acquired() {
		e.Err = rejectedError(p, lease)
	}
	if e.Err != nil {
		c.route.limits.measurer.OnMeasurement(ctx, e)
		return
	}
	begun := pipeline.BeginMeasurement(ctx, c.route.limits.measurer, e)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if g := &c.held[i]; g.policy == p && g.since == answered {
			g.begun = begun
		}
	}
}

// measureLease measures how long permits were held.
func (c *call) measureLease(g *grant) {
	if c.measuring && g.since != extra {
		e := pipeline.Event{Name: ratelimit.MeasureLease, Source: g.policy.source, Duration: clock.Now() - g.since}
		pipeline.EndMeasurement(c.Context, c.route.limits.measurer, e, g.begun)
	}
}

// rejectedError is the rejection as strategies/ratelimit has it, which is what
// listeners know.
func rejectedError(p *policy, lease limiter.Lease) *ratelimit.RejectedError {
	after, _ := lease.RetryAfter()
	return &ratelimit.RejectedError{RetryAfter: max(after, 0), Reason: lease.Reason(), Source: p.source, Lease: lease}
}
