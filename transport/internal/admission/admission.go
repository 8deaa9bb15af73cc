// Package admission is what the servers of package weirhttp and of module weirgrpc have in common: policies that are
// asked in order, what they have granted to a call, and how a handler corrects that. It knows neither HTTP nor gRPC.
// Module weirrls, which has no policies, uses only PerKey and the names of events.
//
// R is the type of a request, which policies find keys and costs in.
//
// Read these files first, in this order:
//
//   - limit.go: what a policy asks.
//   - policy.go: what a policy is, and the policies of a server by name.
//   - call.go: a call, and how a policy decides about it.
//   - grants.go: what a call holds, and how that goes back.
//   - charge.go: how a grant is corrected while a handler runs.
package admission

import (
	"context"

	"github.com/weir-go/weir/pipeline"
)

// A Transport is what differs between the packages that use this one.
type Transport[R any] struct {
	Package          string // the name of the package, with which its errors begin
	ErrNotCharged    error
	ErrPartialRefund error
}

// Limits are what the policies of one server have in common. Make them with [Transport.NewLimits].
type Limits[R any] struct {
	transport *Transport[R]
	hooks     pipeline.Hooks // of the listener
}

// NewLimits returns Limits that report to the listener, which can be nil.
func (t *Transport[R]) NewLimits(listener pipeline.Listener) *Limits[R] {
	return &Limits[R]{transport: t, hooks: pipeline.HooksOf(listener)}
}

// listens reports whether the Listener takes events and measurements of a call. It is called once for a call, so that a
// Listener that is enabled while the call runs does not get the end of a measurement without its beginning.
func (l *Limits[R]) listens(ctx context.Context) (listening, measuring bool) {
	h := &l.hooks
	if h.OnEvent == nil && h.OnMeasurement == nil || h.Enabled != nil && !h.Enabled(ctx) {
		return false, false
	}
	return h.OnEvent != nil, h.OnMeasurement != nil
}
