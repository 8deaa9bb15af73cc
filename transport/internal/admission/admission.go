// Package admission is what the servers of package weirhttp and of module weirgrpc have in common: policies that are
// asked in order, what they have granted to a call, and how a handler corrects that. It knows neither HTTP nor gRPC.
// Module weirrls, which has no policies, uses only PerKey and IsSet.
//
// R is the type of a request, which policies find keys and costs in.
//
// Read these files first, in this order:
//
//   - policy.go: what a policy is, and how it asks its limiter.
//   - call.go: a call, and how a policy decides about it.
//   - grants.go: what a call holds, and how that goes back.
//   - charge.go: how a grant is corrected while a handler runs.
package admission

import (
	"context"

	"github.com/weir-go/weir/internal/isnil"
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
	listener  pipeline.Listener // nil: nothing is reported
	measurer  pipeline.Measurer // nil: the listener takes no measurements
	enabler   enabler           // nil: the listener takes all events
}

// An enabler is a Listener that can decline events.
type enabler interface {
	Enabled(ctx context.Context) bool
}

// NewLimits returns Limits that report to the listener, which can be nil.
func (t *Transport[R]) NewLimits(listener pipeline.Listener) *Limits[R] {
	l := &Limits[R]{transport: t}
	if isnil.Value(listener) {
		return l
	}
	l.listener = listener
	l.measurer = pipeline.MeasurerOf(listener)
	l.enabler, _ = listener.(enabler)
	return l
}

// listens reports whether the Listener takes events and measurements of a call. It is called once for a call, so that a
// Listener that is enabled while the call runs does not get the end of a measurement without its beginning.
func (l *Limits[R]) listens(ctx context.Context) (listening, measuring bool) {
	if l.listener == nil || l.enabler != nil && !l.enabler.Enabled(ctx) {
		return false, false
	}
	return true, l.measurer != nil
}
