package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/weirhttp"
)

// The route that is limited and the route that is free.
const (
	getRoute  = "GET /items/{user}"
	postRoute = "POST /items/create"
)

// serveOptions are the options of an instance.
type serveOptions struct {
	listen   string
	postgres string
	schema   string
	variant  variant
	name     string
	logger   *slog.Logger
}

// serve runs an instance until ctx is done, and then answers the requests that it has. ready is called with the address
// that it listens on.
func serve(ctx context.Context, o serveOptions, ready func(net.Addr)) error {
	pool, err := openPool(ctx, o.postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := setUp(ctx, pool, o.schema, o.variant); err != nil {
		return fmt.Errorf("set up PostgreSQL: %w", err)
	}
	signals, err := newSignals(ctx, o.name, o.logger)
	if err != nil {
		return err
	}
	defer signals.close()
	limited, st, stop, err := o.variant.open(ctx, pool, o.schema, signals.telemetry.OnStoreEvent("postgres"))
	if err != nil {
		return err
	}
	defer stop()
	if st != nil {
		defer signals.telemetry.ObserveStore("postgres", st)()
	}
	handler, err := newHandler(&items{pool, o.schema}, timed{limited}, o.variant.permits(), signals)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	ready(listener.Addr())
	return serveOn(ctx, listener, handler)
}

// openPool makes a pool of connections that the limiter and the handlers share, as in most services.
func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("-postgres is not a URL of a PostgreSQL server") // err can have the password
	}
	config.MaxConns = 16
	return pgxpool.NewWithConfig(ctx, config)
}

// newHandler returns the handler of an instance.
func newHandler(i *items, limited limiter.Partitioned[string], permits int, s *signals) (http.Handler, error) {
	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"per-user": {
			Limit:   weirhttp.ByKey(limited, weirhttp.Subject(func(r *http.Request) string { return r.PathValue("user") })),
			Cost:    func(*http.Request) int { return permits },
			MaxWait: -1, // a request that is not granted is rejected at once
		}},
		OnRejected: rejected,
		Listener:   s.telemetry,
	})
	if err != nil {
		return nil, err
	}
	api := http.NewServeMux()
	api.Handle(postRoute, s.observe(postRoute, http.HandlerFunc(i.create)))
	api.Handle(getRoute, s.observe(getRoute, namedUser(limits.Handler(granted(i.get), "per-user"))))
	mux := http.NewServeMux()
	mux.Handle("/", weirhttp.Measure(s.telemetry, nil)(api))
	mux.Handle("GET /metrics", s.metrics) // not measured, like the next: the figures are about what users send
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	return mux, nil
}

// namedUser keeps keys that no user can have away from the limiter.
func namedUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isName(r.PathValue("user")) {
			http.Error(w, fmt.Sprintf("the user must be UTF-8 of 1 to %d bytes, without zeros", maxName), http.StatusBadRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func serveOn(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// Longer than a call of a limiter can take.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout+time.Second)
	defer cancel()
	err := server.Shutdown(ending)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
