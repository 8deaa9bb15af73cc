package weirhttp

import (
	"net/http"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/admission"
)

// A Policy limits requests: which limiter it asks, what a request costs, and what happens to a request that is
// rejected. Exactly one of Limiter, Partitioned, Requests and Pipeline must be set. Every policy asks its own limiter,
// so equal keys of two policies do not share one.
type Policy struct {
	// Limiter is shared by all requests of the policy.
	Limiter limiter.Limiter `json:"-" yaml:"-"`
	// Partitioned has a limiter for each key; see [PerKey].
	Partitioned limiter.Partitioned[string] `json:"-" yaml:"-"`
	// Key finds the key for Partitioned. The default is [ClientAddress] without
	// options.
	Key Key `json:"-" yaml:"-"`
	// Requests is partitioned by the request itself: for keys that are not strings,
	// and for limiters of a registry.
	Requests limiter.Partitioned[*http.Request] `json:"-" yaml:"-"`
	// Pipeline runs the rest of the request; see [PipelinePolicy].
	Pipeline *pipeline.Pipeline `json:"-" yaml:"-"`

	// Name is the policy's name in events and rejections, if the policy is given to
	// [Limits.WrapInline]. The default is "inline". A policy in
	// [LimitsOptions.Policies] is called by its key there instead.
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Cost returns how many permits a request takes. If nil, a request takes 1. A
	// request of cost 0 takes none, and is admitted if any are left.
	Cost func(r *http.Request) int `json:"-" yaml:"-"`
	// Metered includes the policy when [Charge] is called without names. By default
	// Charge corrects the policy only if Charge is called with its name.
	Metered bool `json:"metered,omitempty" yaml:"metered,omitempty"`

	// MaxWait bounds the wait in the limiter's queue. With 0, the default, a request
	// waits as long as its client does; below 0 it does not wait.
	MaxWait time.Duration `json:"max_wait,omitempty" yaml:"max_wait,omitempty"`
	// Timeout bounds how long the handler of a request may hold its permits. With 0,
	// the default, it is not bounded. When the time is over, the context of the
	// handler is done and reading the body fails; a second later writing fails, too.
	// So neither a client that sends slowly nor one that does not read keeps a
	// permit. If the handler then returns without having begun to answer, the answer
	// is 503. The shortest Timeout of a route applies. Do not set it for streaming
	// handlers.
	Timeout time.Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"`
	// FailOpen admits a request if the limiter cannot decide: the limiter returns an
	// error or is closed, or the store of a shared limiter is away
	// ([limiter.ReasonUnavailable]) or does not answer within MaxWait. By default such
	// a request gets 503. Some cases are decisions, which FailOpen does not change: a
	// cost above what the limiter can grant, and a rejection with
	// [limiter.ReasonPartitionLimit]. A panic of the limiter reaches the caller.
	FailOpen bool `json:"fail_open,omitempty" yaml:"fail_open,omitempty"`
	// Shadow makes the policy decide and report, but never reject and never wait. It
	// cannot be combined with Pipeline: strategies have their own Shadow.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`

	// Status is the status of a rejected request, from 400 to 599. With 0, the
	// default, it is 429 if each key has a limiter of its own, the rejection has a
	// RetryAfter, or the request costs more than the limiter can ever grant: the
	// client is over its quota. Otherwise it is 503, because the server is short of
	// capacity, and also if the limiter is closed, has too many keys, or its store
	// is away.
	Status int `json:"status,omitempty" yaml:"status,omitempty"`
	// OnRejected replaces [LimitsOptions.OnRejected] for this policy.
	OnRejected Body `json:"-" yaml:"-"`
	// Headers replaces [LimitsOptions.Headers] for this policy if it is not
	// [NoHeaders].
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Quota, in permits, and Window are what the header fields tell the client; they
	// limit nothing. With a Quota of 0, the default, the fields describe the options
	// in force of a token bucket or a window in Limiter, or of the limiter that
	// Partitioned or Requests has for the key, and are not sent for other limiters or a
	// Pipeline.
	Quota  int64         `json:"quota,omitempty" yaml:"quota,omitempty"`
	Window time.Duration `json:"window,omitempty" yaml:"window,omitempty"`
}

// PipelinePolicy returns a policy that runs the rest of the request, later policies included, through p. If p comes
// from a registry, a reload changes the policy. The rules of [Through] apply.
//
// A limiter that is partitioned by the request finds it with [RequestFrom]:
//
//	b.Add(ratelimit.NewPartitioned(perUser, weirhttp.RequestFrom, nil))
//
// Make such a policy the last one of its route. If a later policy rejects the request, a concurrency limit inside the
// pipeline gets its permits back, but a rate limit does not get back the tokens that it has spent.
func PipelinePolicy(p *pipeline.Pipeline) Policy { return Policy{Pipeline: p} }

// validate returns a [weir.OptionsError] with everything that is wrong with the policy, or nil.
func (p *Policy) validate() error {
	var problems validate.Problems
	core := p.core("", "")
	core.Validate(&problems, p.Pipeline != nil)
	if p.Key.isInvalid() {
		problems.Add("Key", nil, invalidKeyProblem)
	}
	problems.NotNegative("Timeout", p.Timeout)
	if p.Status != 0 && (p.Status < 400 || p.Status > 599) {
		problems.Add("Status", p.Status, "must be from 400 to 599, or 0")
	}
	admission.ValidateQuota(&problems, p.Quota, p.Window, p.Pipeline != nil)
	p.Headers.validate(&problems)
	return problems.Err("weirhttp")
}

// core returns the part of the policy that package admission knows.
func (p *Policy) core(pipelineName, name string) admission.Policy[*http.Request] {
	return admission.Policy[*http.Request]{
		Name: name, Source: pipeline.Source{Pipeline: pipelineName, Strategy: name},
		Limiter: p.Limiter, Partitioned: p.Partitioned, Requests: p.Requests,
		Key: p.Key, Cost: p.Cost, Metered: p.Metered,
		MaxWait: p.MaxWait, FailOpen: p.FailOpen, Shadow: p.Shadow,
	}
}

// A preparedPolicy is a Policy that is ready for requests.
type preparedPolicy struct {
	admission.Policy[*http.Request]
	options  Policy
	handlers *handlerPipeline                      // runs handlers in Pipeline; nil: there is none
	quota    *admission.QuotaSource[*http.Request] // nil: the policy sends no quota headers
}

// ReasonMaxWait is the reason of the rejected lease of a request that has waited for [Policy.MaxWait].
const ReasonMaxWait = admission.ReasonMaxWait
