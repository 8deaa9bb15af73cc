package weirhttp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/transport/internal/admission"
)

// GlobalPolicy is the name of [LimitsOptions.Global] in events and rejections.
const GlobalPolicy = "global"

// ErrUnknownPolicy is returned by [Limits.Wrap] for a name that no policy has.
var ErrUnknownPolicy = errors.New("weirhttp: unknown policy")

// LimitsOptions are the options of [NewLimits]. The zero value limits nothing.
type LimitsOptions struct {
	// Name is the name of the pipeline in the events of all policies. In these events
	// the name of the strategy is the name of the policy. The default is "http".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Global is asked before the policies of every route, and once for a request,
	// however many handlers with these Limits the request passes. With the zero
	// Policy there is no global limit.
	Global Policy `json:"-" yaml:"-"`
	// Policies are the policies that routes name. The name [GlobalPolicy] is
	// reserved.
	Policies map[string]Policy `json:"-" yaml:"-"`
	// Registry has pipelines that routes can name, too; see [PipelinePolicy]. If nil,
	// routes can name Policies only.
	Registry *registry.Registry `json:"-" yaml:"-"`
	// Exempt reports whether a request passes without any limiter, the global one
	// included. If nil, no request does. [Preflight] is such a function. See also
	// [Limits.Exempt].
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
	// measurements of strategies/ratelimit and as [EventFailed], [EventFailedOpen]
	// and [EventTimeout]. If nil, nothing is reported.
	Listener pipeline.Listener `json:"-" yaml:"-"`
}

// Limits are the policies of a server. Make them with [NewLimits]; the zero value is not usable. They own no limiter:
// close the limiters after the server is shut down. Limits are safe for concurrent use.
type Limits struct {
	options   LimitsOptions
	global    *preparedPolicy // nil: none
	policies  map[string]*preparedPolicy
	admission *admission.Limits[*http.Request]
	hasExempt atomic.Bool // a handler is exempt
	muxes     atomic.Pointer[[]*http.ServeMux]
}

// NewLimits returns Limits with the policies of o. If o is nil, the defaults apply. The error is a [weir.OptionsError]
// with everything that is wrong in all policies.
func NewLimits(o *LimitsOptions) (*Limits, error) {
	l := new(Limits)
	l.muxes.Store(new([]*http.ServeMux))
	if o != nil {
		l.options = *o
	}
	l.options.Name = cmp.Or(l.options.Name, "http")
	if l.options.Body == nil {
		l.options.Body = PlainText
	}
	l.admission = transport.NewLimits(l.options.Listener)
	var problems validate.Problems
	l.options.Headers.validate(&problems)
	if !reflect.ValueOf(l.options.Global).IsZero() {
		l.global = l.prepare(&problems, "Global", GlobalPolicy, l.options.Global)
	}
	l.policies = make(map[string]*preparedPolicy, len(l.options.Policies))
	for _, name := range slices.Sorted(maps.Keys(l.options.Policies)) {
		path := fmt.Sprintf("Policies[%s]", name)
		switch name {
		case "":
			problems.Add(path, nil, "must have a name")
		case GlobalPolicy:
			problems.Add(path, nil, "must have another name, which is reserved for {Global}")
		}
		l.policies[name] = l.prepare(&problems, path, name, l.options.Policies[name])
	}
	if err := problems.Err("weirhttp"); err != nil {
		return nil, err
	}
	return l, nil
}

// prepare returns p ready for requests, with the defaults of the Limits. It adds everything that is wrong with p to
// problems; path is the path of p in the options.
func (l *Limits) prepare(problems *validate.Problems, path, name string, p Policy) *preparedPolicy {
	problems.Include(path, p.validate())
	if p.Partitioned != nil && p.Key == nil {
		p.Key = newAddressFinder(nil).key
	}
	if p.Headers == NoHeaders {
		p.Headers = l.options.Headers
	}
	if p.OnRejected == nil {
		p.OnRejected = l.options.OnRejected
	}
	p.Shadow = p.Shadow || l.options.Shadow && p.Pipeline == nil
	prepared := &preparedPolicy{
		Policy:  p.core(l.options.Name, name),
		options: p,
	}
	if p.Headers != NoHeaders {
		prepared.quota = admission.NewQuotaSource(&prepared.Policy, p.Quota, p.Window)
	}
	if p.Pipeline != nil {
		prepared.handlers = newHandlerPipeline(p.Pipeline, nil)
	}
	return prepared
}

// find returns the policy called name. If there is none, it makes a policy of the registry's pipeline called name.
func (l *Limits) find(name string) (*preparedPolicy, error) {
	if p := l.policies[name]; p != nil {
		return p, nil
	}
	r := l.options.Registry
	if r == nil || !r.Defined(name) {
		return nil, admission.UnknownPolicyError(ErrUnknownPolicy, name, l.policies)
	}
	p, err := r.Get(name)
	if err != nil {
		return nil, fmt.Errorf("weirhttp: policy %q: %w", name, err)
	}
	var none validate.Problems // a pipeline alone is a valid policy
	return l.prepare(&none, "", name, PipelinePolicy(p)), nil
}
