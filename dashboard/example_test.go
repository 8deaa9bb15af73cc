package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// The check says what a limiter would decide, and takes nothing.
func ExampleNew() {
	var events dashboard.Events
	r := registry.New(&registry.Options{Listener: &events})
	defer func() { _ = r.Close(context.Background()) }()
	orders := weir.Must(r.GetOrDefine("orders", func(b *registry.Builder) error {
		b.Add(ratelimit.New(b.Concurrency("orders", limiter.ConcurrencyOptions{PermitLimit: 1}), nil))
		return nil
	}))

	d := weir.Must(dashboard.New(dashboard.Options{Registry: r, Events: &events}))
	defer func() { _ = d.Close() }()
	mux := http.NewServeMux()
	mux.Handle("/weir/", http.StripPrefix("/weir", d))

	ask := func() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/weir/check?pipeline=orders", nil))
		answer, _, _ := strings.Cut(w.Body.String(), "\n")
		fmt.Println(answer)
	}
	ask()
	_ = orders.Execute(context.Background(), func(context.Context) error {
		ask()
		return nil
	})
	// Output:
	// It would be let through.
	// It would be rejected by orders.
}

// Operators can act if the program says who may do what.
func ExampleOptions_authorize() {
	r := registry.New(nil)
	defer func() { _ = r.Close(context.Background()) }()
	orders := weir.Must(r.GetOrDefine("orders", func(b *registry.Builder) error {
		b.Add(circuitbreaker.New(nil))
		return nil
	}))

	d := weir.Must(dashboard.New(dashboard.Options{
		Registry: r,
		Logger:   slog.New(slog.DiscardHandler),
		Authorize: func(r *http.Request, a dashboard.Action) (string, error) {
			user, _, _ := r.BasicAuth() // the program's own authentication has checked the password
			if user != "alice" {
				return "", errors.New("only alice may " + a.Name)
			}
			return user, nil
		},
	}))
	defer func() { _ = d.Close() }()

	for _, user := range []string{"bob", "alice"} {
		form := url.Values{"do": {dashboard.ActionIsolate}, "target": {"orders/CircuitBreaker"}}
		request := httptest.NewRequest(http.MethodPost, "/action", strings.NewReader(form.Encode()))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.SetBasicAuth(user, "")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, request)
		fmt.Print(w.Code, " ", w.Body.String())
	}
	fmt.Println(orders.Execute(context.Background(), func(context.Context) error { return nil }))
	// Output:
	// 403 You may not do this: only alice may isolate
	// 200 The circuit orders/CircuitBreaker is isolated.
	// circuitbreaker: orders/CircuitBreaker: the circuit is isolated
}
