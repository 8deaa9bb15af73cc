package weirhttp

import (
	"context"
	"net/http"
	"slices"

	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// Exempt returns a handler that serves h without the limits of l, also if middleware of l is further inside of h.
//
// Middleware of l further out skips its policies, too, if it can see that the request leads to h. It sees that if it
// wraps the [http.ServeMux] in which the returned handler is registered. If other middleware is around the mux, name
// the mux with [Limits.ExemptIn]. The mux may be in another mux. In the mux, middleware of [Through], of [Measure] and
// of l may wrap the handler, but any other middleware hides the handler.
//
// With other routers, policies further out are asked. If they admit the request, what they granted is given back when
// the request reaches h, as if it had not been taken. If they reject it, the request does not reach h: use
// [LimitsOptions.Exempt] there.
//
// Exempt is for route registration, and panics if h is nil.
func (l *Limits) Exempt(h http.Handler) http.Handler {
	mustNotBeNil("h", h)
	l.hasExempt.Store(true)
	return &exempt{Handler: h, limits: l}
}

// ExemptIn makes l look up each request in mux before it asks a policy. So l finds the handlers of [Limits.Exempt] that
// are registered in mux even if other middleware wraps the mux:
//
//	limits.ExemptIn(mux)
//	http.ListenAndServe(addr, limits.Handler(logging(mux)))
//
// The look-up uses the request as the middleware of l gets it. Do not name a mux behind [http.StripPrefix], which
// changes the path.
//
// ExemptIn is for route registration, and panics if mux is nil.
func (l *Limits) ExemptIn(mux *http.ServeMux) {
	mustNotBeNil("mux", mux)
	l.hasExempt.Store(true)
	for {
		old := l.muxes.Load()
		all := append(slices.Clip(*old), mux) // a copy, because requests read the old one
		if l.muxes.CompareAndSwap(old, &all) {
			return
		}
	}
}

// Preflight reports whether r is a CORS preflight, which a browser sends before the actual request. It is for
// [LimitsOptions.Exempt].
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// An exempt is a handler that is exempt from limits.
type exempt struct {
	http.Handler
	limits *Limits
}

// An exemptKey asks a context whether the request is exempt from limits.
type exemptKey struct{ limits *Limits }

// ServeHTTP gives back what policies further out have granted because they could not see that the request leads here, and
// marks the request for policies further inside.
func (e *exempt) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	undo(e.limits, w, r)
	marked := handlerio.WithContext(r, context.WithValue(r.Context(), exemptKey{e.limits}, true))
	returned := false
	defer func() {
		handlerio.CarryBack(marked, r)
		if !returned {
			handlerio.RemoveFiles(r)
		}
	}()
	e.Handler.ServeHTTP(w, marked)
	returned = true
}

// isExempt reports whether the request is served without limits.
func (h *route) isExempt(r *http.Request) bool {
	l := h.limits
	if exempt := l.options.Exempt; exempt != nil && exempt(r) {
		return true
	}
	if !l.hasExempt.Load() {
		return false
	}
	if r.Context().Value(exemptKey{l}) != nil || l.leadsToExempt(h.next, r) {
		return true
	}
	return slices.ContainsFunc(*l.muxes.Load(), func(mux *http.ServeMux) bool { return l.leadsToExempt(mux, r) })
}

// leadsToExempt reports whether h would hand the request to a handler that is exempt from l. It looks through a bounded
// number of nested handlers, because a mux can contain itself.
func (l *Limits) leadsToExempt(h http.Handler, r *http.Request) bool {
	for range 32 {
		switch nested := h.(type) {
		case *exempt:
			if nested.limits == l {
				return true
			}
			h = nested.Handler
		case *route:
			h = nested.next
		case *throughHandler:
			h = nested.next
		case *measuredHandler:
			h = nested.next
		case interface {
			Handler(r *http.Request) (h http.Handler, pattern string) // as http.ServeMux has it
		}:
			h, _ = nested.Handler(r)
		default:
			return false
		}
	}
	return false
}
