package weirgrpc

import (
	"cmp"

	"google.golang.org/grpc/codes"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/transport/internal/admission"
)

// LimitsOptions are the options of [NewLimits]. The zero value limits nothing.
type LimitsOptions struct {
	// Name is the name of the pipeline in events. The name of the strategy is that of
	// the policy. The default is "grpc".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Global is asked about every call that is not exempt, before the policies of its
	// method. If two interceptors of these Limits are in one chain, it is asked once.
	// With the zero Policy there is no global limit. Its name in events and rejections
	// is "global".
	Global Policy `json:"-" yaml:"-"`
	// Policies are the policies that Methods name. The name "global" is reserved.
	Policies map[string]Policy `json:"-" yaml:"-"`
	// Registry has pipelines that Methods can name like Policies; see [ByPipeline].
	// If nil, Methods can name only Policies.
	Registry *registry.Registry `json:"-" yaml:"-"`
	// Methods has the names of the policies of methods, in the order in which they are
	// asked. A key is "/package.Service/Method", "/package.Service/*" for the other
	// methods of a service, or "*" for all others. A method has the policies of the
	// most specific key, and not those of another. By default there is only Global.
	Methods map[string][]string `json:"methods,omitempty" yaml:"methods,omitempty"`
	// Exempt has the methods that pass without any limiter, the global one included,
	// in the form of the keys of Methods:
	//
	//	"/grpc.health.v1.Health/*", "/grpc.reflection.v1.ServerReflection/*",
	//	"/grpc.reflection.v1alpha.ServerReflection/*"
	//
	// The most specific key of Exempt and Methods applies. By default there are none.
	Exempt []string `json:"exempt,omitempty" yaml:"exempt,omitempty"`

	// Failed reports whether a code is a failure of the handler, for circuit breakers
	// and other strategies of [ByPipeline]. If nil, the failures are UNKNOWN,
	// DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
	Failed func(code codes.Code) bool `json:"-" yaml:"-"`
	// Headers selects the metadata that tells clients what is left of their quota. It
	// is in the header of a successful response, and in the trailer of an error. The
	// default is [NoHeaders].
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Shadow sets [Policy.Shadow] of every policy that is not a pipeline.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`
	// Listener receives the decisions of the policies, as the events and
	// measurements of strategies/ratelimit, as [EventFailed] and [EventFailedOpen], and
	// as that of strategies/timeout for a [Policy.Timeout]. If nil, nothing is reported.
	Listener pipeline.Listener `json:"-" yaml:"-"`
}

// Limits are the policies of a server. Make them with [NewLimits]; the zero value is not usable. They own no limiter:
// close the limiters after the server has stopped. Limits are safe for concurrent use.
type Limits struct {
	options   LimitsOptions
	admission *admission.Limits[*Request]
	routes    routes
}

// NewLimits returns Limits with the policies of o. If o is nil, the defaults apply. The error is a [weir.OptionsError] with
// everything that is wrong.
func NewLimits(o *LimitsOptions) (*Limits, error) {
	l := new(Limits)
	if o != nil {
		l.options = *o
	}
	l.options.Name = cmp.Or(l.options.Name, "grpc")
	if l.options.Failed == nil {
		l.options.Failed = handlerFailedByDefault
	}
	l.admission = transport.NewLimits(l.options.Listener)

	policies := admission.Set[Policy, preparedPolicy]{
		Prepare:  l.prepare,
		Pipeline: func(p *pipeline.Pipeline) Policy { return Policy{Limit: ByPipeline(p)} },
		Registry: l.options.Registry,
	}
	var problems validate.Problems
	l.options.Headers.validate(&problems)
	policies.Add(&problems, l.options.Global, l.options.Policies)
	l.makeRoutes(&problems, &policies)
	if err := problems.Err("weirgrpc"); err != nil {
		return nil, err
	}
	return l, nil
}

// handlerFailedByDefault is the default of [LimitsOptions.Failed]: the codes that say that the server, not the client, has made
// a mistake, as OpenTelemetry's semantic conventions have them.
func handlerFailedByDefault(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	}
	return false
}
