package weirhttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// Wrap returns middleware that asks the global limiter, and then the policies of
// those names in that order. Without names it asks the global limiter only, as is
// right around a whole [http.ServeMux].
//
// The global limiter is asked once for a request; a policy that two handlers around
// each other name is asked by both.
//
// A name that stands for nothing is an [ErrUnknownPolicy], and one that is there
// twice an [ErrInvalidOptions], now and not at the first request; all of them are in
// the error.
func (l *Limits) Wrap(names ...string) (func(http.Handler) http.Handler, error) {
	var errs []error
	policies := make([]*policy, 0, len(names)+1)
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			errs = append(errs, fmt.Errorf("%w: the policy %q is named twice", ErrInvalidOptions, name))
			continue
		}
		p, err := l.find(name)
		if err != nil {
			errs = append(errs, err)
		}
		policies = append(policies, p)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return l.around(policies), nil
}

// MustWrap is Wrap that panics.
func (l *Limits) MustWrap(names ...string) func(http.Handler) http.Handler {
	wrap, err := l.Wrap(names...)
	if err != nil {
		panic(err)
	}
	return wrap
}

// Handler returns h behind the global limiter and the policies of those names. It
// panics at a name that stands for nothing: routes are made when a program starts.
func (l *Limits) Handler(h http.Handler, names ...string) http.Handler {
	return l.MustWrap(names...)(h)
}

// WrapInline is Wrap for policies that have no name in [Options.Policies]. The
// error is an [ErrInvalidOptions].
func (l *Limits) WrapInline(policies ...Policy) (func(http.Handler) http.Handler, error) {
	var errs []error
	compiled := make([]*policy, 0, len(policies)+1)
	for i, p := range policies {
		name := p.Name
		if name == "" {
			name = "inline"
		}
		if name == GlobalPolicy {
			errs = append(errs, fmt.Errorf("inline policy %d: the name %q is reserved", i, name))
		}
		c, err := l.compile(name, p)
		if err != nil {
			errs = append(errs, fmt.Errorf("inline policy %d: %w", i, err))
		}
		compiled = append(compiled, c)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w", ErrInvalidOptions, errors.Join(errs...))
	}
	return l.around(compiled), nil
}

// Exempt returns a handler that serves h without limits. It removes what l has wrapped h
// in. Policies further out leave it out, too, if they stand right around a
// [http.ServeMux] in which the handler is registered, or if [Limits.ExemptIn] has
// named that mux, whatever other middleware stands around the mux. The mux may be in
// another one, and [Through] and l may stand around the handler in it; other middleware
// in there hides the handler.
//
// With other routers the policies further out are asked. When the request reaches h,
// what they granted is given back as if it had not been taken, but a request that they
// reject does not reach h. Use [Options.Exempt] there.
func (l *Limits) Exempt(h http.Handler) http.Handler {
	l.exempts.Store(true)
	for {
		r, ok := h.(*route)
		if !ok || r.limits != l {
			return &exempt{Handler: h, limits: l}
		}
		h = r.next
	}
}

// ExemptIn has all policies of l look up requests in mux before they ask, so that what
// [Limits.Exempt] returned is left out through any middleware between:
//
//	limits.ExemptIn(mux)
//	http.ListenAndServe(addr, limits.Handler(logging(mux)))
//
// The look-up uses the request as it is outside. Do not name a mux behind
// [http.StripPrefix], which sees other paths.
func (l *Limits) ExemptIn(mux *http.ServeMux) {
	l.exempts.Store(true)
	for {
		old := l.muxes.Load()
		all := []*http.ServeMux{mux}
		if old != nil {
			all = append(all, *old...)
		}
		if l.muxes.CompareAndSwap(old, &all) {
			return
		}
	}
}

type exempt struct {
	http.Handler
	limits *Limits
}

// ServeHTTP gives back what was granted further out, where it could not be known that
// the request would come here.
func (e *exempt) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for c := callOf(r.Context()); c != nil; c = c.outer() {
		if c.route.limits == e.limits {
			c.giveBack()
		}
	}
	e.Handler.ServeHTTP(w, r)
}

// A router can say which handler a request would get, as [http.ServeMux] does.
type router interface {
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// A route is a handler and the policies before it.
type route struct {
	limits   *Limits
	next     http.Handler
	policies []*policy
	global   bool    // the first policy is the global one
	timed    *policy // the one with the shortest Timeout; nil: none
	told     bool    // the client is told what is left
}

func (l *Limits) around(policies []*policy) func(http.Handler) http.Handler {
	if l.global != nil {
		policies = append([]*policy{l.global}, policies...)
	}
	of := route{limits: l, policies: policies, global: l.global != nil}
	for _, p := range policies {
		of.told = of.told || p.figures != nil
		if p.Timeout > 0 && (of.timed == nil || p.Timeout < of.timed.Timeout) {
			of.timed = p
		}
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("weirhttp: the handler is nil")
		}
		if e, ok := next.(*exempt); ok && e.limits == l {
			return e
		}
		r := of
		r.next = next
		return &r
	}
}

// ServeHTTP asks the policies, and lets the request through or rejects it.
func (h *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(h.policies) == 0 || h.exempts(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	c := &call{Context: r.Context(), route: h}
	c.held = c.few[:0]
	c.listening, c.measuring = h.limits.hears(c.Context)
	c.request = withContext(r, c)
	if h.global && c.askedGlobally() {
		c.first = 1
	}
	returned := false
	defer c.end()
	defer func() {
		carryBack(c.request, r)
		if !returned {
			removeFiles(r)
		}
	}()
	c.serve(w, c.request, int(c.first))
	returned = true
}

// exempts tells whether nothing is to be asked about the request.
func (h *route) exempts(r *http.Request) bool {
	if exempt := h.limits.options.Exempt; exempt != nil && exempt(r) {
		return true
	}
	if !h.limits.exempts.Load() {
		return false
	}
	if h.limits.leadsToExempt(h.next, r) {
		return true
	}
	if muxes := h.limits.muxes.Load(); muxes != nil {
		for _, mux := range *muxes {
			if h.limits.leadsToExempt(mux, r) {
				return true
			}
		}
	}
	return false
}

// mostSteps bounds how many handlers within each other are looked through: a mux may have itself in it.
const mostSteps = 32

// leadsToExempt reports whether h would hand the request to a handler that is exempt from l.
func (l *Limits) leadsToExempt(h http.Handler, r *http.Request) bool {
	for range mostSteps {
		switch within := h.(type) {
		case *exempt:
			if within.limits == l {
				return true
			}
			h = within.Handler
		case *route:
			h = within.next
		case *throughHandler:
			h = within.next
		case router:
			h, _ = within.Handler(r)
		default:
			return false
		}
	}
	return false
}

// Preflight reports whether the request is a CORS preflight, which a browser sends
// before the actual request. It is for [Options.Exempt].
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}
