package admission

import (
	"context"

	"github.com/weir-go/weir/pipeline"
)

// The events of transports, in addition to those of strategies/ratelimit. The transports document them.
const (
	EventFailed     = "OnRateLimiterFailed"
	EventFailedOpen = "OnRateLimiterFailedOpen"
)

// listens reports whether the Listener takes events and measurements of a call. It is called once for a call, so that a
// Listener that is enabled while the call runs does not get the end of a measurement without its beginning.
func (l *Limits[R]) listens(ctx context.Context) (listening, measuring bool) {
	h := &l.hooks
	if h.OnEvent == nil && h.OnMeasurement == nil || h.Enabled != nil && !h.Enabled(ctx) {
		return false, false
	}
	return h.OnEvent != nil, h.OnMeasurement != nil
}

// report sends an event of a policy to the Listener.
func (l *Limits[R]) report(ctx context.Context, source pipeline.Source, name string, severity pipeline.Severity, err error) {
	l.hooks.OnEvent(ctx, pipeline.Event{
		Name:      name,
		Severity:  severity,
		Source:    source,
		Operation: pipeline.Operation(ctx),
		Err:       err,
	})
}
