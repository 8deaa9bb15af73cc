package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
)

// A Policy is what a policy of a server asks, and how. The exported Policy of each transport documents the fields. It
// has one of Limiter, Partitioned and Requests, or it is a pipeline, which the transport runs by itself.
type Policy[R any] struct {
	Name        string
	Source      pipeline.Source // of the events
	Limiter     limiter.Limiter
	Partitioned limiter.Partitioned[string]
	Requests    limiter.Partitioned[R]
	Key         func(R) string
	Cost        func(R) int
	Metered     bool
	MaxWait     time.Duration
	FailOpen    bool
	Shadow      bool
}

// Validate adds everything that is wrong with the policy to problems. isPipeline reports whether the policy is a
// pipeline.
func (p *Policy[R]) Validate(problems *validate.Problems, isPipeline bool) {
	set := 0
	for _, is := range []bool{
		IsSet(problems, "Limiter", p.Limiter), IsSet(problems, "Partitioned", p.Partitioned),
		IsSet(problems, "Requests", p.Requests), isPipeline,
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
	if !isPipeline {
		return
	}
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

// IsSet reports whether an interface has a value. A nil pointer in it, which would panic at the first call, is a
// problem of the field at path.
func IsSet(problems *validate.Problems, path string, v any) bool {
	if v != nil && isnil.Value(v) {
		problems.Add(path, nil, "must not be a nil pointer")
		return false
	}
	return v != nil
}

// UnknownPolicyError returns the error for a name that none of policies has. It wraps unknown and lists the names.
func UnknownPolicyError[P any](unknown error, name string, policies map[string]P) error {
	const most = 10
	known := make([]string, 0, most+1)
	for _, other := range slices.Sorted(maps.Keys(policies)) {
		if len(known) == most {
			known = append(known, "others")
			break
		}
		known = append(known, strconv.Quote(other))
	}
	if len(known) == 0 {
		return fmt.Errorf("%w: %q; there are no policies", unknown, name)
	}
	return fmt.Errorf("%w: %q; there are %s", unknown, name, strings.Join(known, ", "))
}

// Keyed reports whether each key has a limiter of its own; if not, all clients share one.
func (p *Policy[R]) Keyed() bool { return p.Partitioned != nil || p.Requests != nil }

// acquire asks the limiter for n permits, and waits as long as the policy allows. key is the key for Partitioned, and
// not used otherwise.
func (p *Policy[R]) acquire(ctx context.Context, r R, key string, n int) (limiter.Lease, error) {
	if p.MaxWait <= 0 || p.Shadow {
		return p.ask(ctx, r, key, n, p.MaxWait == 0 && !p.Shadow)
	}
	limited, cancel := context.WithTimeoutCause(ctx, p.MaxWait, errMaxWait)
	defer cancel()
	lease, err := p.ask(limited, r, key, n, true)
	if ctx.Err() == nil && context.Cause(limited) == errMaxWait && endedInQueue(err) { //nolint:errorlint // it is this very cause
		lease.Release() // a limiter of the program may have granted permits and returned an error
		return custom.Rejected(0, ReasonMaxWait), nil
	}
	return lease, err
}

// ask asks the limiter, which can queue the call only if wait is true.
func (p *Policy[R]) ask(ctx context.Context, r R, key string, n int, wait bool) (limiter.Lease, error) {
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

// ReasonMaxWait is the reason of the rejected lease of a call that has waited for MaxWait.
const ReasonMaxWait = "waited too long"

var errMaxWait = errors.New(ReasonMaxWait)

// endedInQueue reports whether err says that the context ended while the call was queued. If a store has not answered
// by then, there is no decision, and FailOpen applies.
func endedInQueue(err error) bool {
	if undecided, ok := errors.AsType[interface {
		error
		Undecided() bool
	}](err); ok && undecided.Undecided() {
		return false
	}
	return pipeline.IsContextError(err) || errors.Is(err, errMaxWait)
}
