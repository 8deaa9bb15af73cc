package routers

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/transport/weirhttp"
)

func TestChiPoliciesOfRoutes(t *testing.T) {
	l := newLimits(t, 100, nil)
	r := chi.NewRouter()
	r.With(weir.Must(l.Wrap("one"))).Get("/orders/{id}", hello)
	r.Method(http.MethodGet, "/reports", l.Handler(hello, "two"))
	r.Get("/free", hello)

	expect(t, r, "/orders/1", http.StatusOK, http.StatusTooManyRequests)
	expect(t, r, "/orders/2", http.StatusTooManyRequests)
	expect(t, r, "/reports", http.StatusOK, http.StatusOK, http.StatusTooManyRequests)
	expect(t, r, "/free", http.StatusOK, http.StatusOK, http.StatusOK)
	expect(t, r, "/nothing", http.StatusNotFound)
}

// With the global limiter around everything and a policy inside, the global limiter is
// asked once for a request. If middleware inside rejects the request, the token of the
// global limiter stays taken: tokens are given back only within one Wrap.
func TestChiGlobalLimitAndGroups(t *testing.T) {
	l := newLimits(t, 4, nil)
	r := chi.NewRouter()
	r.Use(weir.Must(l.Wrap()))
	r.Route("/api", func(r chi.Router) {
		r.Use(weir.Must(l.Wrap("two")))
		r.Get("/orders", hello)
		r.Get("/users", hello)
	})
	r.Get("/other", hello)

	expect(t, r, "/api/orders", http.StatusOK)
	expect(t, r, "/api/users", http.StatusOK, http.StatusTooManyRequests) // by "two"
	expect(t, r, "/other", http.StatusOK, http.StatusTooManyRequests)     // by the global limiter

	l = newLimits(t, 3, nil)
	r = chi.NewRouter()
	limited := r.With(weir.Must(l.Wrap("two"))) // asks the global limiter, too, and this is one Wrap
	limited.Get("/orders", hello)
	r.With(weir.Must(l.Wrap())).Get("/other", hello)

	expect(t, r, "/orders", http.StatusOK, http.StatusOK, http.StatusTooManyRequests)
	expect(t, r, "/other", http.StatusOK, http.StatusTooManyRequests)
}

func TestChiExempt(t *testing.T) {
	l := newLimits(t, 1, nil)
	r := chi.NewRouter()
	r.Method(http.MethodGet, "/healthz", hello)
	r.Group(func(r chi.Router) {
		r.Use(weir.Must(l.Wrap()))
		r.Get("/orders", hello)
	})
	expect(t, r, "/orders", http.StatusOK, http.StatusTooManyRequests)
	expect(t, r, "/healthz", http.StatusOK, http.StatusOK)
}

// Chi sets Request.Pattern when it knows the route. So weirhttp.Route works in With and
// Group, and before the routing its key is "" for all requests.
func TestChiRouteKey(t *testing.T) {
	t.Run("with a route", func(t *testing.T) {
		l := newLimits(t, 100, weirhttp.Route())
		r := chi.NewRouter()
		r.Route("/api", func(r chi.Router) {
			limited := r.With(weir.Must(l.Wrap("per-route")))
			limited.Get("/orders/{id}", hello)
			limited.Get("/users/{id}", hello)
		})
		r.Group(func(r chi.Router) {
			r.Use(weir.Must(l.Wrap("per-route")))
			r.Get("/orders/{id}", hello)
		})
		expect(t, r, "/api/orders/1", http.StatusOK)
		expect(t, r, "/api/orders/2", http.StatusTooManyRequests) // the same route
		expect(t, r, "/api/users/1", http.StatusOK)
		expect(t, r, "/orders/1", http.StatusOK) // not the one below /api
		expect(t, r, "/orders/2", http.StatusTooManyRequests)
	})
	t.Run("before the routing", func(t *testing.T) {
		l := newLimits(t, 100, weirhttp.Route())
		r := chi.NewRouter()
		r.Use(weir.Must(l.Wrap("per-route")))
		r.Get("/orders/{id}", hello)
		r.Get("/users/{id}", hello)
		expect(t, r, "/orders/1", http.StatusOK)
		expect(t, r, "/users/1", http.StatusTooManyRequests)
	})
	// In Use of a subrouter, the pattern is that of the subrouter.
	t.Run("half way", func(t *testing.T) {
		l := newLimits(t, 100, weirhttp.Route())
		r := chi.NewRouter()
		for _, prefix := range []string{"/a", "/b"} {
			r.Route(prefix, func(r chi.Router) {
				r.Use(weir.Must(l.Wrap("per-route")))
				r.Get("/orders", hello)
				r.Get("/users", hello)
			})
		}
		expect(t, r, "/a/orders", http.StatusOK)
		expect(t, r, "/a/users", http.StatusTooManyRequests)
		expect(t, r, "/b/users", http.StatusOK)
	})
}

// In Use of the outermost router, Measure sees every request, and chi has set the pattern when the handler returns.
// Around the router it sees no route, because chi changes the request with WithContext.
func TestChiMeasure(t *testing.T) {
	var rec recorder
	measure := weirhttp.Measure(&rec, nil)
	routes := func(r chi.Router) {
		r.Get("/orders/{id}", hello)
		r.Route("/api", func(r chi.Router) {
			r.Use(weir.Must(newLimits(t, 100, nil).Wrap()))
			r.Get("/users/{id}", hello)
		})
	}
	r := chi.NewRouter()
	r.Use(measure)
	routes(r)
	expectMeasured(t, r, &rec, map[string]string{
		"/orders/7":    `GET "/orders/{id}" 200`,
		"/api/users/7": `GET "/api/users/{id}" 200`,
		"/api/nothing": `GET "/api/*" 404`,
		"/nothing":     `GET "" 404`,
	})
	r = chi.NewRouter()
	routes(r)
	expectMeasured(t, measure(r), &rec, map[string]string{"/orders/7": `GET "" 200`})
}

// A key may be a parameter of the path, in middleware that knows the route.
func TestChiParameterKey(t *testing.T) {
	l := newLimits(t, 100, weirhttp.Subject(func(r *http.Request) string { return chi.URLParam(r, "tenant") }))
	r := chi.NewRouter()
	r.With(weir.Must(l.Wrap("per-route"))).Get("/{tenant}/orders", hello)
	expect(t, r, "/a/orders", http.StatusOK, http.StatusTooManyRequests)
	expect(t, r, "/b/orders", http.StatusOK)
}
