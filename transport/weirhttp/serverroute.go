package weirhttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
)

// Wrap returns middleware that asks the global limiter, and then the policies called names, in that order. Without
// names it asks the global limiter only, which is what a whole [http.ServeMux] needs.
//
// The global limiter is asked once for a request. A policy that two nested handlers name is asked by both.
//
// For a name that no policy has, the error is [ErrUnknownPolicy]; for a name that is given twice, a
// [weir.OptionsError]. If several names are wrong, the errors are joined. Most callers want [Limits.Handler].
func (l *Limits) Wrap(names ...string) (func(http.Handler) http.Handler, error) {
	var unknown []error
	var problems validate.Problems
	policies := make([]*preparedPolicy, 0, len(names)+1)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			problems.Add(fmt.Sprintf("names[%d]", i), name, "must not repeat an earlier name")
			continue
		}
		p, err := l.find(name)
		if err != nil {
			unknown = append(unknown, err)
		}
		policies = append(policies, p)
	}
	if err := errors.Join(append(unknown, problems.Err("weirhttp"))...); err != nil {
		return nil, err
	}
	return l.around(policies), nil
}

// MustWrap is [Limits.Wrap] for route registration. It panics if Wrap returns an error.
func (l *Limits) MustWrap(names ...string) func(http.Handler) http.Handler {
	wrap, err := l.Wrap(names...)
	if err != nil {
		panic(err)
	}
	return wrap
}

// Handler returns h behind the global limiter and the policies called names; see [Limits.Wrap]. It is for route
// registration, and panics if Wrap returns an error.
func (l *Limits) Handler(h http.Handler, names ...string) http.Handler {
	return l.MustWrap(names...)(h)
}

// WrapInline is [Limits.Wrap] for policies that are not in [LimitsOptions.Policies]. The error is a
// [weir.OptionsError] with everything that is wrong in all of them.
func (l *Limits) WrapInline(policies ...Policy) (func(http.Handler) http.Handler, error) {
	var problems validate.Problems
	prepared := make([]*preparedPolicy, 0, len(policies)+1)
	for i, p := range policies {
		path := fmt.Sprintf("policies[%d]", i)
		name := cmp.Or(p.Name, "inline")
		if name == GlobalPolicy {
			problems.Add(path+".Name", name, "must be another name, which is reserved for {Global}")
		}
		prepared = append(prepared, l.prepare(&problems, path, name, p))
	}
	if err := problems.Err("weirhttp"); err != nil {
		return nil, err
	}
	return l.around(prepared), nil
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

// around returns middleware that makes routes with the global policy and then policies.
func (l *Limits) around(policies []*preparedPolicy) func(http.Handler) http.Handler {
	if l.global != nil {
		policies = append([]*preparedPolicy{l.global}, policies...)
	}
	template := route{limits: l, policies: policies, global: l.global != nil}
	for _, p := range policies {
		template.sendsQuotas = template.sendsQuotas || p.quota != nil
		if p.options.Timeout > 0 && (template.timed == nil || p.options.Timeout < template.timed.options.Timeout) {
			template.timed = p
		}
	}
	return func(next http.Handler) http.Handler {
		mustNotBeNil("next", next)
		if e, ok := next.(*exempt); ok && e.limits == l {
			return e
		}
		r := template
		r.next = next
		return &r
	}
}

// mustNotBeNil panics with a [weir.OptionsError] if an argument of a function for route registration is nil.
func mustNotBeNil(name string, argument any) {
	if isnil.Value(argument) {
		var problems validate.Problems
		problems.Add(name, nil, "must not be nil")
		panic(problems.Err("weirhttp"))
	}
}
