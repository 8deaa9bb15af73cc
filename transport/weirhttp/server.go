package weirhttp

import (
	"cmp"
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/transport/internal/admission"
)

// LimitsOptions are the options of [NewLimits]. The zero value limits nothing.
type LimitsOptions struct {
	// Name is the name of the pipeline in the events of all policies. In these events
	// the name of the strategy is the name of the policy. The default is "http".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Global is asked before the policies of every route, and once for a request,
	// however many handlers with these Limits the request passes. With the zero
	// Policy there is no global limit. Its name in events and rejections is "global".
	Global Policy `json:"-" yaml:"-"`
	// Policies are the policies that routes name. The name "global" is reserved.
	Policies map[string]Policy `json:"-" yaml:"-"`
	// Registry has pipelines that routes can name, too; see [ByPipeline]. If nil,
	// routes can name Policies only.
	Registry *registry.Registry `json:"-" yaml:"-"`
	// Exempt reports whether a request passes without any limiter, the global one
	// included: health checks and CORS preflights, for example. It is called by each
	// handler with these Limits that the request passes. If nil, no request is exempt.
	Exempt func(r *http.Request) bool `json:"-" yaml:"-"`

	// OnRejected is called for each rejected request, after Retry-After and the quota
	// headers are set. It can answer the request; if it writes nothing, Body does. It
	// must not keep the ResponseWriter. If nil, Body answers.
	OnRejected Body `json:"-" yaml:"-"`
	// Body answers a rejected request. The default is [PlainText].
	Body Body `json:"-" yaml:"-"`
	// Headers selects the header fields that tell clients what is left of their
	// quota, also in answers to admitted requests. The default is none.
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Shadow sets [Policy.Shadow] of every policy that is not a pipeline.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`
	// Listener receives the decisions of the policies, as the events and
	// measurements of strategies/ratelimit, as [EventFailed] and [EventFailedOpen],
	// and as that of strategies/timeout for a [Policy.Timeout]. If nil, nothing is
	// reported.
	Listener pipeline.Listener `json:"-" yaml:"-"`
}

// Limits are the policies of a server. Make them with [NewLimits]; the zero value is not usable. They own no limiter:
// close the limiters after the server is shut down. Limits are safe for concurrent use.
type Limits struct {
	options   LimitsOptions
	policies  admission.Set[Policy, preparedPolicy]
	admission *admission.Limits[*http.Request]
}

// NewLimits returns Limits with the policies of o. If o is nil, the defaults apply. The error is a [weir.OptionsError]
// with everything that is wrong in all policies.
func NewLimits(o *LimitsOptions) (*Limits, error) {
	l := new(Limits)
	if o != nil {
		l.options = *o
	}
	l.options.Name = cmp.Or(l.options.Name, "http")
	if l.options.Body == nil {
		l.options.Body = PlainText
	}
	l.admission = transport.NewLimits(l.options.Listener)
	l.policies = admission.Set[Policy, preparedPolicy]{
		Prepare:  l.prepare,
		Pipeline: func(p *pipeline.Pipeline) Policy { return Policy{Limit: ByPipeline(p)} },
		Registry: l.options.Registry,
	}
	var problems validate.Problems
	l.options.Headers.validate(&problems)
	l.policies.Add(&problems, l.options.Global, l.options.Policies)
	if err := problems.Err("weirhttp"); err != nil {
		return nil, err
	}
	return l, nil
}

// Wrap returns middleware that asks the global limiter, and then the policies called names, in that order. Without
// names it asks the global limiter only, which is what a whole [http.ServeMux] needs.
//
// The global limiter is asked once for a request. A policy that two nested handlers name is asked by both.
//
// The error is a [weir.OptionsError] with every name that no policy has or that is given twice. Most callers want
// [Limits.Handler], or weir.Must(limits.Wrap(…)) where a router takes middleware.
func (l *Limits) Wrap(names ...string) (func(http.Handler) http.Handler, error) {
	var problems validate.Problems
	template := route{limits: l}
	template.policies, template.global = l.policies.Route(&problems, "names", names)
	if err := problems.Err("weirhttp"); err != nil {
		return nil, err
	}
	for _, p := range template.policies {
		template.sendsQuotas = template.sendsQuotas || p.sendsQuota
		if p.Timeout > 0 && (template.timed == nil || p.Timeout < template.timed.Timeout) {
			template.timed = p
		}
	}
	return func(next http.Handler) http.Handler {
		mustNotBeNil("next", next)
		r := template
		r.next = next
		return &r
	}, nil
}

// Handler returns h behind the global limiter and the policies called names; see [Limits.Wrap]. It is for route
// registration, and panics if Wrap returns an error.
func (l *Limits) Handler(h http.Handler, names ...string) http.Handler {
	return weir.Must(l.Wrap(names...))(h)
}

// A route is a handler with the policies in front of it.
type route struct {
	limits      *Limits
	next        http.Handler
	policies    []*preparedPolicy // the global one first
	global      bool              // the first policy is the global one
	timed       *preparedPolicy   // the policy with the shortest Timeout; nil: none
	sendsQuotas bool              // a policy sends quota headers
}

// isExempt reports whether the request is served without limits.
func (h *route) isExempt(r *http.Request) bool {
	exempt := h.limits.options.Exempt
	return exempt != nil && exempt(r)
}

// mustNotBeNil panics with a [weir.OptionsError] if an argument of a function for route registration is nil.
func mustNotBeNil(name string, argument any) {
	if isnil.Value(argument) {
		var problems validate.Problems
		problems.Add(name, nil, "must not be nil")
		panic(problems.Err("weirhttp"))
	}
}
