package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/weirhttp"
)

const (
	slots    = 4                     // requests that are worked on at a time
	slotWait = time.Second           // how long a request waits for a slot
	work     = 20 * time.Millisecond // how long a request takes
)

// plans are the plans that users can have. Each user has their own bucket.
var plans = map[string]limiter.TokenBucketOptions{
	"free": {TokenLimit: 3, TokensPerPeriod: 3, ReplenishmentPeriod: time.Second},
	"paid": {TokenLimit: 6, TokensPerPeriod: 6, ReplenishmentPeriod: time.Second},
}

type user struct{ name, plan string }

// users are the users of the API, by their key.
var users = map[string]user{
	"key-of-fay": {"fay", "free"},
	"key-of-pat": {"pat", "paid"},
}

// api is the server without the network.
type api struct {
	handler http.Handler
	slots   *limiter.Concurrency
	buckets map[string]*limiter.PartitionedLimiter[string, string] // by plan

	mu       sync.Mutex
	busy     int
	busiest  int            // the largest that busy was
	admitted map[string]int // by user
	rejected map[string]int // by user
}

func newAPI() (*api, error) {
	a := &api{
		buckets:  make(map[string]*limiter.PartitionedLimiter[string, string]),
		admitted: make(map[string]int),
		rejected: make(map[string]int),
	}
	var err error
	if a.slots, err = limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: slots, QueueLimit: 100}); err != nil {
		return nil, err
	}
	policies := make(map[string]weirhttp.Policy)
	for name, o := range plans {
		perUser, err := weirhttp.PerKey(limiter.FactoryFor[string](o), &limiter.PartitionedOptions{MaxPartitions: 10_000})
		if err != nil {
			return nil, errors.Join(err, a.Close())
		}
		a.buckets[name] = perUser
		policies[name] = weirhttp.Policy{
			Limit:  weirhttp.ByKey(perUser, weirhttp.Subject(func(r *http.Request) string { return userOf(r).name })),
			Quota:  int64(o.TokensPerPeriod), // for the headers
			Window: o.ReplenishmentPeriod,
		}
	}
	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Global:     weirhttp.Policy{Limit: weirhttp.Of(a.slots), MaxWait: slotWait},
		Policies:   policies,
		Headers:    weirhttp.Draft11,
		Body:       weirhttp.ProblemJSON,
		OnRejected: a.onRejected,
	})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.handler = a.routes(limits)
	return a, nil
}

// routes returns the server's handler. The limits are inside the authentication, which finds the plan and the key.
func (a *api) routes(limits *weirhttp.Limits) http.Handler {
	orders := make(map[string]http.Handler) // by plan
	for plan := range plans {
		orders[plan] = limits.Handler(http.HandlerFunc(a.order), plan)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", authenticate(func(w http.ResponseWriter, r *http.Request) {
		orders[userOf(r).plan].ServeHTTP(w, r)
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "fine\n") })
	return mux
}

type userKey struct{}

// authenticate puts the user of the API key into the request's context.
func authenticate(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok := users[r.Header.Get("X-Api-Key")]
		if !ok {
			http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
			return
		}
		next(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
	})
}

func userOf(r *http.Request) user {
	u, _ := r.Context().Value(userKey{}).(user)
	return u
}

// order is the handler behind all limits.
func (a *api) order(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.admitted[userOf(r).name]++
	a.busy++
	a.busiest = max(a.busiest, a.busy)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.busy--
		a.mu.Unlock()
	}()
	select {
	case <-time.After(work):
		fmt.Fprintf(w, "order %s\n", r.PathValue("id"))
	case <-r.Context().Done():
	}
}

// onRejected counts and writes nothing, so Body answers.
func (a *api) onRejected(_ http.ResponseWriter, r *http.Request, _ weirhttp.Rejection) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rejected[userOf(r).name]++
}

// Close closes the limiters, which [weirhttp.Limits] do not own.
func (a *api) Close() error {
	var errs []error
	for _, b := range a.buckets {
		errs = append(errs, b.Close())
	}
	return errors.Join(append(errs, a.slots.Close())...)
}
