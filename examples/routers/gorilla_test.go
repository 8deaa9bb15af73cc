package routers

import (
	"net/http"
	"testing"

	"github.com/gorilla/mux"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/transport/weirhttp"
)

func TestGorillaPoliciesOfRoutes(t *testing.T) {
	l := newLimits(t, 100, nil)
	r := mux.NewRouter()
	r.Handle("/orders/{id}", l.Handler(hello, "one")).Methods(http.MethodGet)
	reports := r.PathPrefix("/reports").Subrouter()
	reports.Use(weir.Must(l.Wrap("two")))
	reports.Handle("/daily", hello)
	reports.Handle("/weekly", hello)
	r.Handle("/free", hello)

	expect(t, r, "/orders/1", http.StatusOK, http.StatusTooManyRequests)
	expect(t, r, "/orders/2", http.StatusTooManyRequests)
	expect(t, r, "/reports/daily", http.StatusOK)
	expect(t, r, "/reports/weekly", http.StatusOK, http.StatusTooManyRequests)
	expect(t, r, "/free", http.StatusOK, http.StatusOK, http.StatusOK)
}

// The middleware of the router does not run for requests without a route. To count them
// too, wrap the router itself.
func TestGorillaGlobalLimit(t *testing.T) {
	t.Run("Use", func(t *testing.T) {
		l := newLimits(t, 1, nil)
		r := mux.NewRouter()
		r.Use(weir.Must(l.Wrap()))
		r.Handle("/orders", l.Handler(hello, "two"))
		expect(t, r, "/nothing", http.StatusNotFound, http.StatusNotFound)
		expect(t, r, "/orders", http.StatusOK, http.StatusTooManyRequests)
	})
	t.Run("around it", func(t *testing.T) {
		l := newLimits(t, 1, nil)
		r := mux.NewRouter()
		r.Handle("/orders", hello)
		h := l.Handler(r)
		expect(t, h, "/nothing", http.StatusNotFound, http.StatusTooManyRequests)
		expect(t, h, "/orders", http.StatusTooManyRequests)
	})
}

// template is the route of a request.
func template(r *http.Request) string {
	if route := mux.CurrentRoute(r); route != nil {
		path, _ := route.GetPathTemplate()
		return path
	}
	return ""
}

// Gorilla does not set Request.Pattern, so weirhttp.Route has the key "" for all routes. A
// key can be made of the route's template instead.
func TestGorillaRouteKey(t *testing.T) {
	for name, k := range map[string]struct {
		key    weirhttp.Key
		second int // the status of the second route
	}{
		"Route":    {weirhttp.Route(), http.StatusTooManyRequests},
		"template": {weirhttp.Subject(template), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimits(t, 100, k.key)
			r := mux.NewRouter()
			r.Use(weir.Must(l.Wrap("per-route")))
			r.Handle("/orders/{id}", hello)
			r.Handle("/users/{id}", hello)
			expect(t, r, "/orders/1", http.StatusOK)
			expect(t, r, "/orders/2", http.StatusTooManyRequests)
			expect(t, r, "/users/1", k.second)
		})
	}
}

// Gorilla calls middleware only for requests with a route, so Measure is around the router for all requests, and in Use for
// the route.
func TestGorillaMeasure(t *testing.T) {
	var rec recorder
	measure := weirhttp.Measure(&rec, &weirhttp.MeasureOptions{Route: template})
	r := mux.NewRouter()
	r.Use(measure)
	r.Handle("/orders/{id}", hello)
	expectMeasured(t, measure(r), &rec, map[string]string{
		"/orders/7": `GET "/orders/{id}" 200`,
		"/nothing":  `GET "" 404`,
	})
}

func TestGorillaParameterKey(t *testing.T) {
	l := newLimits(t, 100, weirhttp.Subject(func(r *http.Request) string { return mux.Vars(r)["tenant"] }))
	r := mux.NewRouter()
	r.Handle("/{tenant}/orders", l.Handler(hello, "per-route"))
	expect(t, r, "/a/orders", http.StatusOK, http.StatusTooManyRequests)
	expect(t, r, "/b/orders", http.StatusOK)
}
