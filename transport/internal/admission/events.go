package admission

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// The events of transports, in addition to those of strategies/ratelimit. The transports document them.
const (
	EventFailed     = "OnRateLimiterFailed"
	EventFailedOpen = "OnRateLimiterFailedOpen"
)

// listens reports whether the Listener wants the events and the measurements of a call. It is called once for a call: a Listener that
// is enabled later must not get the end of a measurement without its beginning.
func (l *Limits[R]) listens(ctx context.Context) (listening, measuring bool) {
	h := &l.hooks
	if h.OnEvent == nil && h.OnMeasurement == nil || h.Enabled != nil && !h.Enabled(ctx) {
		return false, false
	}
	return h.OnEvent != nil, h.OnMeasurement != nil
}

// Report sends an event of the policy to the Listener.
func (c *Call[R]) Report(ctx context.Context, p *Policy[R], name string, severity pipeline.Severity, err error) {
	if c.listening {
		c.limits.hooks.OnEvent(ctx, pipeline.Event{Name: name, Severity: severity, Source: p.Source, Operation: pipeline.Operation(ctx), Err: err})
	}
}

// measureRequest reports how long the limiter took to answer. It is called when the call holds the lease, so that End gives the
// lease back if the Listener panics.
func (c *Call[R]) measureRequest(ctx context.Context, p *Policy[R], waited, answered time.Duration, lease limiter.Lease, err error) {
	e := pipeline.Event{Name: ratelimit.MeasureRequest, Source: p.Source, Duration: waited, Err: err}
	if err == nil && !lease.Acquired() {
		e.Err = p.rejectedError(lease)
	}
	ended := c.limits.hooks.OnMeasurement(ctx, e)
	if e.Err != nil || ended == nil {
		return
	}
	c.change(func(g *grant[R]) {
		if g.policy == p && g.since == answered {
			g.ended = func() {
				ended(c.Context, pipeline.Event{Name: ratelimit.MeasureLease, Source: p.Source, Duration: clock.Now() - answered})
			}
		}
	})
}
