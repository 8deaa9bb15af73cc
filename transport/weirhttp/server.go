package weirhttp

import (
	"cmp"
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/transport/internal/admission"
)

// LimitsOptions are the options of [NewLimits]. The zero value limits nothing.
type LimitsOptions struct {
	// Name is the name of the pipeline in events. The name of the strategy is that of
	// the policy. The default is "http".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Global is asked before the policies of every route, and once for a request,
	// however many handlers with these Limits the request passes. A request that a
	// handler makes with the context of its own, and gives to such a handler itself, is
	// a part of that request: Global is not asked again. With the zero Policy there is
	// no global limit. Its name in events and rejections is "global".
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
	headers := admission.Headers(l.options.Headers)
	l.admission = transport.NewLimits(admission.Options{
		Name: l.options.Name, Headers: headers, Shadow: l.options.Shadow, Listener: l.options.Listener,
	})
	l.policies = admission.Set[Policy, preparedPolicy]{
		Prepare:  l.prepare,
		Pipeline: func(p *pipeline.Pipeline) Policy { return Policy{Limit: ByPipeline(p)} },
		Registry: l.options.Registry,
	}
	var problems validate.Problems
	headers.Validate(&problems)
	l.policies.Add(&problems, l.options.Global, l.options.Policies)
	if err := problems.Err("weirhttp"); err != nil {
		return nil, err
	}
	return l, nil
}

// prepare makes p ready for requests. It adds everything that is wrong with p to problems; path is its place in the options.
func (l *Limits) prepare(problems *validate.Problems, path, name string, p Policy) *preparedPolicy {
	if p.OnRejected == nil {
		p.OnRejected = l.options.OnRejected
	}
	var own validate.Problems
	prepared := &preparedPolicy{options: p, Policy: l.admission.Prepare(&own, admission.Policy[*http.Request]{
		Name: name, Limit: p.Limit.core, Cost: p.Cost, Metered: p.Metered, MaxWait: p.MaxWait, Timeout: p.Timeout,
		FailOpen: p.FailOpen, Shadow: p.Shadow, Headers: admission.Headers(p.Headers), Quota: p.Quota, Window: p.Window,
	})}
	if p.Status != 0 && (p.Status < 400 || p.Status > 599) {
		own.Add("Status", p.Status, "must be from 400 to 599, or 0")
	}
	problems.Include(path, own.Err("weirhttp"))
	if prepared.Limit.Pipeline != nil {
		prepared.handlers = newHandlerPipeline(prepared.Limit.Pipeline, nil)
	}
	return prepared
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
		template.sendsQuotas = template.sendsQuotas || p.SendsQuota()
		if p.Timeout > 0 && !p.Shadow && (template.timed == nil || p.Timeout < template.timed.Timeout) {
			template.timed = p
		}
	}
	return func(next http.Handler) http.Handler {
		admission.MustNotBeNil("weirhttp", "next", next)
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

// PerKey returns a limiter for [ByKey] that has a limiter of factory for each key. If o is nil, the
// defaults apply. Clients can often make up keys, so a MaxPartitions of 0 is 100,000 here; with -1 the
// number of keys is not bounded. The error is a [weir.OptionsError].
func PerKey(factory limiter.Factory[string], o *limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	return admission.PerKey("weirhttp", factory, o)
}

// PerIP returns middleware that admits n requests of each client in a window. Others get 429 with Retry-After. The window slides in
// ten steps, so that n holds for any nine tenths of it:
//
//	http.ListenAndServe(addr, weirhttp.PerIP(100, time.Minute)(mux))
//
// The client is the peer address of the connection; IPv6 addresses count by /64. Behind a proxy all requests come from
// the proxy: use [NewLimits] with [ClientAddress] there. All handlers that the returned middleware wraps share the
// limits, for up to 100,000 addresses at a time; a new address beyond that gets 503 until another has
// been idle for a window. Every answer has X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset.
//
// PerIP is for route registration, and panics if n or window is below 1.
func PerIP(n int, window time.Duration) func(http.Handler) http.Handler {
	var problems validate.Problems
	problems.AtLeast("n", n, 1)
	problems.Positive("window", window)
	if err := problems.Err("weirhttp"); err != nil {
		panic(err)
	}
	perIP := weir.Must(PerKey(limiter.FactoryFor[string](limiter.SlidingWindowOptions{
		PermitLimit: n, Window: window, SegmentsPerWindow: segments(window),
	}), nil))
	limits := weir.Must(NewLimits(&LimitsOptions{Headers: Legacy, Policies: map[string]Policy{
		"per-ip": {Limit: ByKey(perIP, nil), Quota: int64(n), Window: window},
	}}))
	return weir.Must(limits.Wrap("per-ip"))
}

// segments returns the largest number up to 10 that divides window.
func segments(window time.Duration) int {
	for n := 10; n > 1; n-- {
		if window >= time.Duration(n) && window%time.Duration(n) == 0 {
			return n
		}
	}
	return 1
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
