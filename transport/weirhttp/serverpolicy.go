package weirhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
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
	// default, it is 429 if each key has a limiter of its own or the rejection has
	// a RetryAfter, because then the client is over its quota. Otherwise it is 503,
	// because the server is short of capacity, and also if the limiter is closed,
	// has too many keys, or its store is away.
	Status int `json:"status,omitempty" yaml:"status,omitempty"`
	// OnRejected replaces [LimitsOptions.OnRejected] for this policy.
	OnRejected Body `json:"-" yaml:"-"`
	// Headers replaces [LimitsOptions.Headers] for this policy if it is not
	// [NoHeaders].
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Quota, in permits, and Window are what the header fields tell the client; they
	// limit nothing. With a Quota of 0, the default, the fields describe the options
	// of a token bucket or a window in Limiter, and are not sent for other limiters.
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
	set := 0
	for _, is := range []bool{
		isSet(&problems, "Limiter", p.Limiter), isSet(&problems, "Partitioned", p.Partitioned),
		isSet(&problems, "Requests", p.Requests), p.Pipeline != nil,
	} {
		if is {
			set++
		}
	}
	switch {
	case set == 0:
		problems.Add("", nil, "must have one of {Limiter}, {Partitioned}, {Requests} and {Pipeline}")
	case set > 1:
		problems.Add("", nil, "must have only one of {Limiter}, {Partitioned}, {Requests} and {Pipeline}")
	}
	if p.Key != nil && p.Partitioned == nil {
		problems.Add("Key", nil, "must not be set without {Partitioned}")
	}
	if p.Key.isInvalid() {
		problems.Add("Key", nil, invalidKeyProblem)
	}
	if p.Pipeline != nil {
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"Cost", p.Cost != nil}, {"Metered", p.Metered}, {"MaxWait", p.MaxWait != 0},
			{"FailOpen", p.FailOpen}, {"Shadow", p.Shadow},
		} {
			if f.set {
				problems.Add(f.name, nil, "must not be set with {Pipeline}, whose strategies have their own")
			}
		}
	}
	problems.NotNegative("Timeout", p.Timeout)
	if p.Status != 0 && (p.Status < 400 || p.Status > 599) {
		problems.Add("Status", p.Status, "must be from 400 to 599, or 0")
	}
	if p.Quota < 0 {
		problems.Add("Quota", p.Quota, "must be at least 0")
	}
	problems.NotNegative("Window", p.Window)
	return problems.Err("weirhttp")
}

// isSet reports whether an interface has a value. A nil pointer in it, which would panic at the first request, is a
// problem of the field at path.
func isSet(problems *validate.Problems, path string, v any) bool {
	if v != nil && isnil.Value(v) {
		problems.Add(path, nil, "must not be a nil pointer")
		return false
	}
	return v != nil
}

// A preparedPolicy is a Policy that is ready for requests.
type preparedPolicy struct {
	Policy
	name     string
	source   pipeline.Source
	handlers *handlerPipeline // runs handlers in Pipeline; nil: there is none
	quota    *quotaSource     // nil: the policy sends no quota headers
}

// keyed reports whether each key has a limiter of its own; if not, all clients share one.
func (p *preparedPolicy) keyed() bool { return p.Limiter == nil && p.Pipeline == nil }

// acquire asks the limiter for n permits, and waits as long as the policy allows. key is the key for Partitioned, and
// not used otherwise.
func (p *preparedPolicy) acquire(ctx context.Context, r *http.Request, key string, n int) (limiter.Lease, error) {
	if p.MaxWait <= 0 || p.Shadow {
		return p.ask(ctx, r, key, n, p.MaxWait == 0 && !p.Shadow)
	}
	limited, cancel := context.WithTimeoutCause(ctx, p.MaxWait, errMaxWait)
	defer cancel()
	lease, err := p.ask(limited, r, key, n, true)
	if ctx.Err() == nil && context.Cause(limited) == errMaxWait && endedInQueue(err) { //nolint:errorlint // it is this very cause
		lease.Release() // a limiter of the program may have granted permits and returned an error
		return limiter.Rejected(0, ReasonMaxWait), nil
	}
	return lease, err
}

// ask asks the limiter, which can queue the request only if wait is true.
func (p *preparedPolicy) ask(ctx context.Context, r *http.Request, key string, n int, wait bool) (limiter.Lease, error) {
	switch {
	case p.Limiter != nil && wait:
		return p.Limiter.Acquire(ctx, n)
	case p.Limiter != nil:
		return p.Limiter.TryAcquire(ctx, n)
	case p.Partitioned != nil && wait:
		return p.Partitioned.Acquire(ctx, key, n)
	case p.Partitioned != nil:
		return p.Partitioned.TryAcquire(ctx, key, n)
	case wait:
		return p.Requests.Acquire(ctx, r, n)
	default:
		return p.Requests.TryAcquire(ctx, r, n)
	}
}

// ReasonMaxWait is the reason of the rejected lease of a request that has waited for [Policy.MaxWait].
const ReasonMaxWait = "waited too long"

var errMaxWait = errors.New(ReasonMaxWait)

// endedInQueue reports whether err says that the context ended while the request was queued. If a store has not
// answered by then, there is no decision, and FailOpen applies.
func endedInQueue(err error) bool {
	if undecided, ok := errors.AsType[interface {
		error
		Undecided() bool
	}](err); ok && undecided.Undecided() {
		return false
	}
	return pipeline.IsContextError(err) || errors.Is(err, errMaxWait)
}
