package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// A Policy says what limits a request, what the request costs, and what becomes of
// it when it is rejected. One of Limiter, Partitioned, Requests and Pipeline must
// be set; every other field may be left out. Two policies never share a key: each
// asks its own limiter.
type Policy struct {
	// Limiter is shared by all requests of the policy.
	Limiter limiter.Limiter `json:"-" yaml:"-"`
	// Partitioned has a limiter for each key; see [PerKey].
	Partitioned limiter.Partitioned[string] `json:"-" yaml:"-"`
	// Key finds the key for Partitioned; nil is the address of the client, as
	// [ClientAddress] without options finds it.
	Key Key `json:"-" yaml:"-"`
	// Requests is for keys that are no strings, and for limiters that a registry
	// keeps: it sees the request.
	Requests limiter.Partitioned[*http.Request] `json:"-" yaml:"-"`
	// Pipeline runs the rest of the request; see [PipelinePolicy].
	Pipeline *pipeline.Pipeline `json:"-" yaml:"-"`

	// Name is how a policy is called that has no name in [Options.Policies]: an
	// inline one. It shows in events and rejections; "" is "inline".
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Cost is how many permits a request takes; nil is 1 for each. With 0 it takes
	// none and is let through if any are left.
	Cost func(r *http.Request) int `json:"-" yaml:"-"`
	// Metered: [Charge] corrects what this policy has charged.
	Metered bool `json:"metered,omitempty" yaml:"metered,omitempty"`

	// MaxWait bounds the wait in the limiter's queue; 0: as long as the client
	// waits, less than 0: not at all.
	MaxWait time.Duration `json:"max_wait,omitempty" yaml:"max_wait,omitempty"`
	// Timeout bounds how long the handler of a request may hold its permits; 0: for
	// as long as it runs. At the end its context is done, and reading the body
	// fails; a second later writing does, too, so neither a client that sends
	// slowly nor one that does not read keeps a permit. A handler that returns then
	// without having begun to answer has 503 written for it. The shortest Timeout of
	// a route counts. It is nothing for what streams for as long as it likes.
	Timeout time.Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"`
	// FailOpen lets a request through when the limiter cannot decide: when it returns
	// an error, when the store of a shared limiter is away and the request is rejected
	// with [limiter.ReasonUnavailable] or has not answered within MaxWait, and when the
	// limiter has been closed. Without it
	// the request gets 503. A cost above what the limiter can grant is still an error,
	// and so is a rejection with [limiter.ReasonPartitionLimit] a rejection: the limiter
	// has decided. A panic of the limiter goes to the caller.
	FailOpen bool `json:"fail_open,omitempty" yaml:"fail_open,omitempty"`
	// Shadow: decide and report, but never reject and never wait. It cannot be
	// combined with Pipeline, whose strategies have a Shadow of their own.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`

	// Status of a rejected request. 0 goes by the cause: 429 where the caller is
	// over its quota, which is so for every rejection by key, and for one that
	// time alone will mend; 503 where we are short of capacity.
	Status int `json:"status,omitempty" yaml:"status,omitempty"`
	// OnRejected is called in place of [Options.OnRejected].
	OnRejected Body `json:"-" yaml:"-"`
	// Headers is in place of [Options.Headers], if it is not NoHeaders.
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Quota and Window are what Headers tell the client. They are needed for
	// limiters by key; a token bucket or window in Limiter knows them itself.
	Quota  int64         `json:"quota,omitempty" yaml:"quota,omitempty"`
	Window time.Duration `json:"window,omitempty" yaml:"window,omitempty"`
}

// PipelinePolicy is a policy that runs the rest of the request, later policies
// included, through p. Where p is a registry's handle, a reload changes the policy.
// What [Through] says of pipelines around handlers goes for it, too.
//
// A limiter that is partitioned by the request finds it with [RequestFrom]:
//
//	b.Add(ratelimit.NewPartitioned(perUser, weirhttp.RequestFrom, nil))
//
// A rate limit inside a pipeline gives back what it lends when a later policy
// rejects, but not what it spends. So have such a policy last on its route.
func PipelinePolicy(p *pipeline.Pipeline) Policy { return Policy{Pipeline: p} }

// DefaultMaxPartitions is how many keys [PerKey] has limiters for where nothing else
// is said.
const DefaultMaxPartitions = 100_000

// PerKey returns a limiter for [Policy.Partitioned] that has a limiter of factory
// for each key. Clients can often make up keys, so here a MaxPartitions of 0 is
// [DefaultMaxPartitions], and -1 is no bound.
func PerKey(factory limiter.Factory[string], o limiter.PartitionedOptions) (*limiter.PartitionedLimiter[string, string], error) {
	if factory == nil {
		return nil, fmt.Errorf("%w: PerKey: the factory is nil", limiter.ErrInvalidOptions)
	}
	switch o.MaxPartitions {
	case 0:
		o.MaxPartitions = DefaultMaxPartitions
	case -1:
		o.MaxPartitions = 0
	}
	return limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: factory}
	}, &o)
}

// validate returns everything that is wrong with the policy.
func (p *Policy) validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch p.kinds() {
	case 0:
		add("one of Limiter, Partitioned, Requests and Pipeline must be set")
	case 1:
	default:
		add("only one of Limiter, Partitioned, Requests and Pipeline may be set")
	}
	if p.Key != nil && p.Partitioned == nil {
		add("Key is set, but Partitioned is not")
	}
	if p.Pipeline != nil && (p.Shadow || p.Cost != nil || p.Metered || p.MaxWait != 0 || p.FailOpen) {
		add("Cost, Metered, MaxWait, FailOpen and Shadow do not go with Pipeline: its strategies have their own")
	}
	if p.Timeout < 0 {
		add("Timeout is %v, must not be negative", p.Timeout)
	}
	if p.Status != 0 && (p.Status < 400 || p.Status > 599) {
		add("Status is %d, must be from 400 to 599, or 0", p.Status)
	}
	if p.Quota < 0 {
		add("Quota is %d, must not be negative", p.Quota)
	}
	if p.Window < 0 {
		add("Window is %v, must not be negative", p.Window)
	}
	return errors.Join(errs...)
}

// kinds is how many of those fields are set of which one must be.
func (p *Policy) kinds() int {
	n := 0
	for _, l := range []any{p.Limiter, p.Partitioned, p.Requests, p.Pipeline} {
		if !isnil.Value(l) {
			n++
		}
	}
	return n
}

// A policy is a Policy as requests go through it.
type policy struct {
	Policy
	name    string
	source  pipeline.Source
	through *through // of a Pipeline
	figures figures  // nil: nothing to tell the client
	global  bool
}

// keyed tells whether the policy limits callers rather than all of them together.
func (p *policy) keyed() bool { return p.Limiter == nil && p.Pipeline == nil }

// ask asks the limiter, which waits unless it must not. key is that of a Partitioned.
func (p *policy) ask(ctx context.Context, r *http.Request, key string, n int, wait bool) (limiter.Lease, error) {
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

// ReasonMaxWait is the reason of a rejected lease whose request waited for
// [Policy.MaxWait] in vain.
const ReasonMaxWait = "waited too long"

var errMaxWait = errors.New(ReasonMaxWait)

// acquire asks the limiter as the policy wants it.
func (p *policy) acquire(ctx context.Context, r *http.Request, key string, n int) (limiter.Lease, error) {
	if p.MaxWait <= 0 {
		return p.ask(ctx, r, key, n, p.MaxWait == 0 && !p.Shadow)
	}
	if p.Shadow {
		return p.ask(ctx, r, key, n, false)
	}
	limited, cancel := context.WithTimeoutCause(ctx, p.MaxWait, errMaxWait)
	defer cancel()
	lease, err := p.ask(limited, r, key, n, true)
	if ctx.Err() == nil && context.Cause(limited) == errMaxWait && waitedInVain(err) { //nolint:errorlint // it is the very cause that was set
		lease.Release() // a limiter of the program may have granted permits and returned an error
		return limiter.Rejected(0, ReasonMaxWait), nil
	}
	return lease, err
}

// waitedInVain reports whether err says that a wait in the queue has ended with its context. If a store has not
// answered by then, no decision was taken, which is a case for FailOpen.
func waitedInVain(err error) bool {
	if undecided, ok := errors.AsType[interface {
		error
		Undecided() bool
	}](err); ok && undecided.Undecided() {
		return false
	}
	return pipeline.IsContextError(err) || errors.Is(err, errMaxWait)
}
