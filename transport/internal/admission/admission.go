// Package admission has what the servers of package weirhttp and of module weirgrpc have in common: policies, which are asked in
// order, the leases that a call holds, and the correction of its costs by the handler. It knows neither HTTP nor gRPC. Module
// weirrls, which has no policies, uses only the bound on keys and the names of events.
//
// R is the type of a request. Policies find its key and its cost.
//
// Read these files first, in this order:
//
//   - limit.go: what a policy asks.
//   - policy.go: what a policy is, and the policies of a server by name.
//   - call.go: a call, and how a policy decides about it.
//   - grants.go: the leases that a call holds, and how they are given back.
//   - charge.go: how a handler finds its leases, and corrects the cost of its call.
package admission

import (
	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// A Transport has what differs between weirhttp and weirgrpc.
type Transport[R any] struct {
	Package          string // the name of the package, with which its errors begin
	Fields           Fields
	ErrNotCharged    error
	ErrPartialRefund error
}

// Fields are the names of the header fields, or the keys of the metadata, that tell clients about their quotas.
type Fields struct{ Policy, Limit, LegacyLimit, LegacyRemaining, LegacyReset string }

// Headers selects the Fields that are sent. Each transport has a type of its own with the same values, which it documents.
type Headers uint8

// The values of Headers.
const (
	NoHeaders Headers = iota
	Legacy
	Draft11
)

// HeadersTexts returns the text forms of the Headers of a transport.
func HeadersTexts[H ~uint8](pkg string) textenum.Texts[H] {
	return textenum.Texts[H]{Package: pkg, Type: "Headers", Texts: []string{NoHeaders: "none", Legacy: "legacy", Draft11: "draft-11"}}
}

var headersTexts = HeadersTexts[Headers]("")

// String returns the text form, or Headers(n) for any other number.
func (h Headers) String() string { return headersTexts.String(h) }

// Validate adds a problem of the field Headers if h is none of the values.
func (h Headers) Validate(problems *validate.Problems) {
	if !headersTexts.Has(h) {
		problems.Add("Headers", h, "must be NoHeaders, Legacy or Draft11")
	}
}

// Options apply to all policies of a server.
type Options struct {
	Name     string // of the pipeline in events
	Headers  Headers
	Shadow   bool
	Listener pipeline.Listener // can be nil
}

// Limits are the policies of a server. Make them with [Transport.NewLimits].
type Limits[R any] struct {
	transport *Transport[R]
	options   Options
	hooks     pipeline.Hooks // of the Listener
}

// NewLimits returns Limits with these options.
func (t *Transport[R]) NewLimits(o Options) *Limits[R] {
	return &Limits[R]{transport: t, options: o, hooks: pipeline.HooksOf(o.Listener)}
}
