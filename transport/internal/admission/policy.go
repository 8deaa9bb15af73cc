package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/internal/status"
)

// A Policy is a policy of a server. The exported Policy of each transport documents the fields.
type Policy[R any] struct {
	Name     string
	Source   pipeline.Source // of the events; [Limits.Prepare] sets it
	Limit    Limit[R]
	Cost     func(R) int
	Metered  bool
	MaxWait  time.Duration
	Timeout  time.Duration // the transport keeps it
	FailOpen bool
	Shadow   bool
	Headers  Headers
	Quota    int64
	Window   time.Duration
}

// Prepare returns p, completed by the options of the Limits. It adds everything that is wrong with p to problems.
func (l *Limits[R]) Prepare(problems *validate.Problems, p Policy[R]) Policy[R] {
	p.validate(problems)
	p.Source = pipeline.Source{Pipeline: l.options.Name, Strategy: p.Name}
	p.Headers = cmp.Or(p.Headers, l.options.Headers)
	p.Shadow = p.Shadow || l.options.Shadow && p.Limit.Pipeline == nil
	return p
}

// validate adds everything that is wrong with the policy to problems.
func (p *Policy[R]) validate(problems *validate.Problems) {
	p.Headers.Validate(problems)
	p.Limit.validate(problems)
	if p.Limit.Pipeline != nil {
		for _, f := range []struct {
			name string
			set  bool
		}{
			{"Cost", p.Cost != nil}, {"Metered", p.Metered}, {"MaxWait", p.MaxWait != 0}, {"FailOpen", p.FailOpen},
			{"Shadow", p.Shadow}, {"Quota", p.Quota > 0},
		} {
			if f.set {
				problems.Add(f.name, nil, "must not be set with a pipeline, whose strategies have their own")
			}
		}
	}
	problems.NotNegative("Timeout", p.Timeout)
	if p.Quota < 0 {
		problems.Add("Quota", p.Quota, "must be at least 0")
	}
	problems.NotNegative("Window", p.Window)
}

// acquire asks the limiter for n permits. A shadow does not wait in a queue, but MaxWait also bounds the time that a store takes.
func (p *Policy[R]) acquire(ctx context.Context, r R, key string, n int) (limiter.Lease, error) {
	wait := p.MaxWait >= 0 && !p.Shadow
	if p.MaxWait <= 0 {
		return p.Limit.ask(ctx, r, key, n, wait)
	}
	limited, cancel := context.WithTimeoutCause(ctx, p.MaxWait, errMaxWait)
	defer cancel()
	lease, err := p.Limit.ask(limited, r, key, n, wait)
	if ctx.Err() == nil && context.Cause(limited) == errMaxWait && endedInQueue(err) { //nolint:errorlint // it is this very cause
		lease.Refund() // a limiter of the program may have granted permits and returned an error
		return custom.Rejected(0, errMaxWait.Error()), nil
	}
	return lease, err
}

// errMaxWait is the cause of a context that MaxWait has ended. Its text is the reason of the rejection.
var errMaxWait = errors.New("waited too long")

// endedInQueue reports whether err says that the context ended while the call was in a queue. A store that has not answered by
// then has not decided, so FailOpen applies.
func endedInQueue(err error) bool {
	if undecided, ok := errors.AsType[interface {
		error
		Undecided() bool
	}](err); ok && undecided.Undecided() {
		return false
	}
	return pipeline.IsContextError(err) || errors.Is(err, errMaxWait)
}

// ambiguous is the lease of a call whose key is [AmbiguousKey]. No limiter is asked about it.
var ambiguous = custom.Rejected(0, "the request has several values of what its key is made of")

// causeOf returns the cause of a rejection. If each key has a limiter of its own, the client is over its quota.
func (p *Policy[R]) causeOf(lease limiter.Lease) status.Cause {
	if lease.Reason() == ambiguous.Reason() {
		return status.Ambiguous
	}
	cause, reason := status.OfLease(lease), lease.Reason()
	waited := reason == errMaxWait.Error() && p.Limit.limits != nil // for permits that come back with time
	if cause == status.OverCapacity && (p.Limit.keyed && reason != limiter.ReasonPartitionLimit || waited) {
		return status.OverQuota
	}
	return cause
}

// admits reports whether the policy admits a call although the limiter has rejected it. A rejection because of too many keys is
// a decision: if FailOpen applied to it, a client could pass every limit by making up keys.
func (p *Policy[R]) admits(lease limiter.Lease) bool {
	return p.Shadow || p.FailOpen && status.OfLease(lease) == status.Undecided
}

// rejectedError returns the error for listeners, which is that of strategies/ratelimit.
func (p *Policy[R]) rejectedError(lease limiter.Lease) *ratelimit.RejectedError {
	return &ratelimit.RejectedError{Reason: lease.Reason(), Source: p.Source, Lease: lease, Shadow: p.admits(lease)}
}

// GlobalPolicy is the name of the global policy.
const GlobalPolicy = "global"

// A Set has the policies of a server by name. P is the exported Policy of the transport, and Q is its policy that is ready for
// requests.
type Set[P, Q any] struct {
	// Prepare makes a policy ready for requests. It adds everything that is wrong with p to problems; path is its place in the
	// options.
	Prepare func(problems *validate.Problems, path, name string, p P) *Q
	// Pipeline returns the policy of a pipeline.
	Pipeline func(*pipeline.Pipeline) P
	// Registry has pipelines that routes can name like policies. It can be nil.
	Registry *registry.Registry

	global *Q // nil: none
	named  map[string]*Q
}

// Add adds the policies of the options. If global is the zero value, there is no global policy.
func (s *Set[P, Q]) Add(problems *validate.Problems, global P, named map[string]P) {
	if !reflect.ValueOf(global).IsZero() {
		s.global = s.Prepare(problems, "Global", GlobalPolicy, global)
	}
	s.named = make(map[string]*Q, len(named))
	for _, name := range slices.Sorted(maps.Keys(named)) {
		path := fmt.Sprintf("Policies[%s]", name)
		switch name {
		case "":
			problems.Add(path, nil, "must have a name")
		case GlobalPolicy:
			problems.Add(path, nil, "must have another name, which is reserved for {Global}")
		}
		s.named[name] = s.Prepare(problems, path, name, named[name])
	}
}

// Route returns the policies of a route: the global one, if there is one, and then those called names. path is the place of the
// names in the options.
func (s *Set[P, Q]) Route(problems *validate.Problems, path string, names []string) (policies []*Q, hasGlobal bool) {
	policies = make([]*Q, 0, len(names)+1)
	if s.global != nil {
		policies = append(policies, s.global)
	}
	for i, name := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		if slices.Contains(names[:i], name) {
			problems.Add(at, name, "must not repeat an earlier name")
		} else if p := s.find(problems, at, name); p != nil {
			policies = append(policies, p)
		}
	}
	return policies, s.global != nil
}

// find returns the policy called name. If there is none, it makes a policy of the registry's pipeline called name.
func (s *Set[P, Q]) find(problems *validate.Problems, path, name string) *Q {
	if p := s.named[name]; p != nil {
		return p
	}
	if name == GlobalPolicy || s.Registry == nil || !s.Registry.Defined(name) {
		problems.Add(path, name, "must be the name of a policy (%s)", s.names())
		return nil
	}
	p, err := s.Registry.Get(name)
	if err != nil {
		problems.Include(path, err)
		return nil
	}
	return s.Prepare(problems, path, name, s.Pipeline(p))
}

// names lists the policies for an error.
func (s *Set[P, Q]) names() string {
	known := slices.Sorted(maps.Keys(s.named))
	if len(known) == 0 {
		return "there are none"
	}
	for i, name := range known {
		known[i] = strconv.Quote(name)
	}
	if len(known) > 10 {
		known = append(known[:10], "others")
	}
	return strings.Join(known, ", ")
}
