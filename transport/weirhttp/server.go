// Package weirhttp brings limiters and pipelines to net/http: a server's
// middleware here, a client's round tripper beside it. It works with every router
// that takes an [http.Handler] or a func(http.Handler) http.Handler.
//
//	perUser, err := weirhttp.PerKey(limiter.TokenBucketFactory[string](limiter.TokenBucketOptions{…}),
//		limiter.PartitionedOptions{MaxPartitions: 100_000})
//	…
//	limits, err := weirhttp.New(weirhttp.Options{
//		Global: weirhttp.Policy{Limiter: slots}, // asked first, once for a request
//		Policies: map[string]weirhttp.Policy{
//			"per-user": {Partitioned: perUser, Key: weirhttp.Header("X-Api-Key")},
//			"reports":  {Limiter: reports, Timeout: time.Minute},
//		},
//	})
//	…
//	mux.Handle("/orders", limits.Handler(orders, "per-user"))
//	mux.Handle("/reports", limits.Handler(reporting, "per-user", "reports"))
//	mux.Handle("/healthz", limits.Exempt(health))
//
// The policies of a route are asked in order, and a request that a later one
// rejects costs nothing in those before it; where handlers of two calls of Wrap
// stand around each other, what the inner rejects has cost what the outer granted.
// A rejected request gets 429 or 503 by
// its cause, with Retry-After where that is known. The handler of one that is let
// through finds its leases with [LeaseFrom], and corrects with [Charge] what it
// cost once it knows.
//
// # Pipelines
//
// [Through] runs handlers in a whole pipeline: timeouts, concurrency limits,
// circuit breakers that see the status. [PipelinePolicy] makes a policy of one, so
// that what a registry reloads is in force for the next request.
//
// # Where it stands
//
// Outside of what answers without limits, and inside of what authenticates, if a
// key comes from there. A request with a body that the handler has not read yet is
// not seen to be aborted by net/http before HTTP/2: bound its wait with
// [Policy.MaxWait].
package weirhttp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
)

// GlobalPolicy is the name of [Options.Global] in events and rejections.
const GlobalPolicy = "global"

// ErrInvalidOptions is returned by [New]; the text names every policy and field
// that is wrong.
var ErrInvalidOptions = errors.New("weirhttp: invalid options")

// ErrUnknownPolicy is returned by [Limits.Wrap] for a name that stands for nothing.
var ErrUnknownPolicy = errors.New("weirhttp: unknown policy")

// Options are what [New] makes [Limits] of. The zero Options limit nothing.
type Options struct {
	// Name stands for all of it in events; "" is "http". A policy's events have it
	// as the pipeline and the policy's name as the strategy.
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Global is asked before the policies of every route, once for a request
	// however many handlers it goes through. The zero Policy: there is none.
	Global Policy `json:"-" yaml:"-"`
	// Policies are those that routes name. None may be called [GlobalPolicy].
	Policies map[string]Policy `json:"-" yaml:"-"`
	// Registry has pipelines that routes may name besides; see [PipelinePolicy].
	Registry *registry.Registry `json:"-" yaml:"-"`
	// Exempt reports whether a request passes without any limiter, not even the global
	// one. If nil, no request does. [Preflight] is such a function. See also
	// [Limits.Exempt].
	Exempt func(r *http.Request) bool `json:"-" yaml:"-"`

	// OnRejected is called for each rejected request, when Retry-After and the
	// like are set already. It may answer the request itself; if it writes
	// nothing, Body does. It must not keep the ResponseWriter.
	OnRejected Body `json:"-" yaml:"-"`
	// Body answers a rejected request; nil is [PlainText].
	Body Body `json:"-" yaml:"-"`
	// Headers tell clients what is left of their quota, also in answers to
	// requests that were let through.
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Shadow is [Policy.Shadow] for every policy that is no pipeline.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`
	// Listener is told what the policies decide, in the events and measurements
	// of strategies/ratelimit and in [EventFailed], [EventFailedOpen] and
	// [EventTimeout].
	Listener pipeline.Listener `json:"-" yaml:"-"`
}

// A Rejection is a request that is not let through.
type Rejection struct {
	Policy     string        // which policy it was
	Lease      limiter.Lease // the limiter's answer; the zero Lease where Err says more
	RetryAfter time.Duration // 0: not known
	Status     int           // what the answer should have
	// Err is nil where a limiter rejected, else what went wrong: the limiter's
	// error, a pipeline's, a [*TimeoutError].
	Err error
}

// Limits are the policies of a server. Make them with [New]; the zero Limits are
// of no use. They own no limiter, and are safe for concurrent use.
type Limits struct {
	options  Options
	global   *policy // nil: none
	policies map[string]*policy
	measurer pipeline.Measurer
	chooser  enabler
	exempts  atomic.Bool // a handler is exempt
	muxes    atomic.Pointer[[]*http.ServeMux]
}

// New checks the options and returns the Limits. The error is an
// [ErrInvalidOptions] that names all that is wrong.
func New(o Options) (*Limits, error) {
	if o.Name == "" {
		o.Name = "http"
	}
	if o.Body == nil {
		o.Body = PlainText
	}
	l := &Limits{options: o, policies: make(map[string]*policy, len(o.Policies))}
	l.listen()
	var errs []error
	add := func(name string, p Policy) *policy {
		compiled, err := l.compile(name, p)
		if err != nil {
			errs = append(errs, fmt.Errorf("policy %q: %w", name, err))
		}
		return compiled
	}
	if o.Global.isSet() {
		l.global = add(GlobalPolicy, o.Global)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Policies)) {
		if name == "" || name == GlobalPolicy {
			errs = append(errs, fmt.Errorf("policy %q: the name is reserved", name))
		}
		l.policies[name] = add(name, o.Policies[name])
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrInvalidOptions, errors.Join(errs...))
	}
	return l, nil
}

// isSet tells whether anything is set: a policy without a limiter is a mistake.
func (p *Policy) isSet() bool {
	return p.kinds() > 0 || p.Key != nil || p.Cost != nil || p.OnRejected != nil ||
		p.Name != "" || p.Metered || p.MaxWait != 0 || p.Timeout != 0 || p.FailOpen || p.Shadow ||
		p.Status != 0 || p.Headers != NoHeaders || p.Quota != 0 || p.Window != 0
}

// compile makes a policy ready for use.
func (l *Limits) compile(name string, p Policy) (*policy, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	if p.Partitioned != nil && p.Key == nil {
		p.Key = ClientAddress(nil)
	}
	if p.Headers == NoHeaders {
		p.Headers = l.options.Headers
	}
	if p.OnRejected == nil {
		p.OnRejected = l.options.OnRejected
	}
	p.Shadow = p.Shadow || l.options.Shadow && p.Pipeline == nil
	c := &policy{
		Policy: p,
		name:   name,
		global: name == GlobalPolicy,
		source: pipeline.Source{Pipeline: l.options.Name, Strategy: name},
	}
	if p.Headers != NoHeaders {
		c.figures = figuresOf(&c.Policy)
	}
	if p.Pipeline != nil {
		c.through = newThrough(p.Pipeline, nil)
	}
	return c, nil
}

// find returns the policy of that name, which may be one of the registry's.
func (l *Limits) find(name string) (*policy, error) {
	if p := l.policies[name]; p != nil {
		return p, nil
	}
	r := l.options.Registry
	if r == nil || !r.Defined(name) {
		return nil, fmt.Errorf("%w: %q", ErrUnknownPolicy, name)
	}
	p, err := r.Get(name)
	if err != nil {
		return nil, fmt.Errorf("weirhttp: policy %q: %w", name, err)
	}
	return l.compile(name, PipelinePolicy(p))
}
