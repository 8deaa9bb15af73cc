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

// Report sends an event of the policy to the Listener.
func (c *Call[R]) Report(ctx context.Context, p *Policy[R], name string, severity pipeline.Severity, err error) {
	if !c.listening {
		return
	}
	c.limits.hooks.OnEvent(ctx, pipeline.Event{
		Name:      name,
		Severity:  severity,
		Source:    p.Source,
		Operation: pipeline.Operation(ctx),
		Err:       err,
	})
}

// measureRequest reports how long the policy took to answer. It is called when the call holds the lease, so that the
// lease is given back if the Listener panics.
func (c *Call[R]) measureRequest(ctx context.Context, p *Policy[R], waited, answered time.Duration, lease limiter.Lease, err error) {
	e := pipeline.Event{Name: ratelimit.MeasureRequest, Source: p.Source, Duration: waited, Err: err}
	if err == nil && !lease.Acquired() {
		e.Err = rejectedError(p, lease)
	}
	ended := c.limits.hooks.OnMeasurement(ctx, e)
	if e.Err != nil || ended == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if g := &c.held[i]; g.policy == p && g.since == answered {
			g.ended = ended
		}
	}
}

// measureLease reports how long the permits of g were held.
func (c *Call[R]) measureLease(g *grant[R]) {
	if g.ended != nil {
		g.ended(c.Context, pipeline.Event{Name: ratelimit.MeasureLease, Source: g.policy.Source, Duration: clock.Now() - g.since})
	}
}

// rejectedError returns the rejection as strategies/ratelimit reports it to listeners.
func rejectedError[R any](p *Policy[R], lease limiter.Lease) *ratelimit.RejectedError {
	return &ratelimit.RejectedError{Reason: lease.Reason(), Source: p.Source, Lease: lease, Shadow: p.admits(lease)}
}

// admits reports whether the policy admits a call although the limiter has rejected it.
func (p *Policy[R]) admits(lease limiter.Lease) bool {
	return p.Shadow || p.FailOpen && undecided(lease)
}
