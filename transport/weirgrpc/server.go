package weirgrpc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

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
	routes    methods[*route]
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
	headers := admission.Headers(l.options.Headers)
	l.admission = transport.NewLimits(admission.Options{
		Name: l.options.Name, Headers: headers, Shadow: l.options.Shadow, Listener: l.options.Listener,
	})
	policies := admission.Set[Policy, preparedPolicy]{
		Prepare:  l.prepare,
		Pipeline: func(p *pipeline.Pipeline) Policy { return Policy{Limit: ByPipeline(p)} },
		Registry: l.options.Registry,
	}
	var problems validate.Problems
	headers.Validate(&problems)
	policies.Add(&problems, l.options.Global, l.options.Policies)
	l.makeRoutes(&problems, &policies)
	if err := problems.Err("weirgrpc"); err != nil {
		return nil, err
	}
	return l, nil
}

// handlerFailedByDefault is the default of [LimitsOptions.Failed]: the codes of failures of a server in OpenTelemetry's semantic
// conventions.
func handlerFailedByDefault(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.Unimplemented, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	}
	return false
}

// prepare makes p ready for calls. It adds everything that is wrong with p to problems; path is its place in the options.
func (l *Limits) prepare(problems *validate.Problems, path, name string, p Policy) *preparedPolicy {
	var own validate.Problems
	prepared := &preparedPolicy{options: p, Policy: l.admission.Prepare(&own, admission.Policy[*Request]{
		Name: name, Limit: p.Limit.core, Cost: p.Cost, Metered: p.Metered, MaxWait: p.MaxWait, Timeout: p.Timeout,
		FailOpen: p.FailOpen, Shadow: p.Shadow, Headers: admission.Headers(p.Headers), Quota: p.Quota, Window: p.Window,
	})}
	if !streamTexts.Has(p.Streams) {
		own.Add("Streams", p.Streams, "must be StreamHold, StreamAdmit, StreamReceived, StreamSent or StreamMessages")
	}
	if prepared.Limit.Pipeline != nil && p.Streams != StreamHold {
		own.Add("Streams", p.Streams, "must not be set with a pipeline, which runs the whole stream")
	}
	if p.Code > codes.Unauthenticated {
		own.Add("Code", uint32(p.Code), "must be a code of gRPC from 1 to %d, or 0", codes.Unauthenticated)
	}
	problems.Include(path, own.Err("weirgrpc"))
	return prepared
}

// A route has the policies of a method. The zero route has none.
type route struct {
	limits      *Limits
	policies    []*preparedPolicy // asked when a call begins; the global one first
	global      bool              // the first policy is the global one
	received    []*preparedPolicy // asked about each message that a stream receives
	sent        []*preparedPolicy // asked about each message that a stream sends
	timed       *preparedPolicy   // the policy with the shortest Timeout; nil: none
	sendsQuotas bool              // a policy sends quota metadata

	endsHandlers bool // a Timeout or a pipeline can end the context of a handler before the call ends
}

// makeRoutes makes the routes of the options. It adds everything that is wrong with them to problems.
func (l *Limits) makeRoutes(problems *validate.Problems, policies *admission.Set[Policy, preparedPolicy]) {
	newRoute := func(path string, names []string) *route {
		r := &route{limits: l}
		r.policies, r.global = policies.Route(problems, path, names)
		r.prepare()
		return r
	}
	l.routes = make(methods[*route])
	l.routes.set("*", newRoute("", nil))
	for _, pattern := range slices.Sorted(maps.Keys(l.options.Methods)) {
		path := fmt.Sprintf("Methods[%s]", pattern)
		checkPattern(problems, path, nil, pattern)
		l.routes.set(pattern, newRoute(path, l.options.Methods[pattern]))
	}
	for i, pattern := range l.options.Exempt {
		path := fmt.Sprintf("Exempt[%d]", i)
		if _, limited := l.options.Methods[pattern]; limited {
			problems.Add(path, pattern, "must not be in {Methods}, too")
			continue
		}
		checkPattern(problems, path, pattern, pattern)
		l.routes.set(pattern, &route{limits: l})
	}
}

// prepare sets the fields that follow from the policies.
func (r *route) prepare() {
	for _, p := range r.policies {
		o := &p.options
		r.sendsQuotas = r.sendsQuotas || p.SendsQuota()
		limitsTime := o.Timeout > 0 && !p.Shadow
		r.endsHandlers = r.endsHandlers || limitsTime || p.Limit.Pipeline != nil
		if limitsTime && (r.timed == nil || o.Timeout < r.timed.options.Timeout) {
			r.timed = p
		}
		if o.Streams == StreamReceived || o.Streams == StreamMessages {
			r.received = append(r.received, p.clone())
		}
		if o.Streams == StreamSent || o.Streams == StreamMessages {
			r.sent = append(r.sent, p.clone())
		}
	}
}
