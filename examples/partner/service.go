package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/transport/weirhttp"
)

// The route that is limited and the route that is free.
const (
	getRoute  = "GET /items/{user}"
	postRoute = "POST /items/create"
)

// postgresURL is the environment variable with the URL of PostgreSQL. A flag shows its value, which can have a password, to
// all users of the machine.
const postgresURL = "WEIR_POSTGRES_URL"

// serveOptions are the options of an instance.
type serveOptions struct {
	listen, postgres, schema, name string
	variant                        variant
	logger                         *slog.Logger
}

// serve runs an instance until ctx is done, and then answers the requests that it has. ready is called with the address
// that it listens on.
func serve(ctx context.Context, o serveOptions, ready func(net.Addr)) error {
	pool, err := o.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	signals, err := newSignals(ctx, o.name, o.logger)
	if err != nil {
		return err
	}
	defer signals.close()
	limited, stop, err := o.variant.open(ctx, pool, o.schema, signals)
	if err != nil {
		return err
	}
	defer stop()
	handler, err := newHandler(pool, limited, signals)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	ready(listener.Addr())
	server := &http.Server{Handler: handler, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout+time.Second)
	defer cancel()
	defer func() { <-served }()
	return errors.Join(server.Shutdown(ending), server.Close())
}

// pool returns a pool of connections that the limiter and the handlers share, as in most services, after it has created the
// tables. Every instance may call it.
func (o serveOptions) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(o.postgres)
	if err != nil || o.postgres == "" {
		return nil, errors.New("-postgres or " + postgresURL + " must be the URL of a PostgreSQL server") // err can have the password
	}
	config.MaxConns = 16
	schema := pgx.Identifier{o.schema}.Sanitize()
	config.ConnConfig.RuntimeParams["search_path"] = schema + ", public"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range append([]string{
			// "if not exists" alone fails if two sessions create the same at the same time.
			"select pg_advisory_xact_lock(hashtextextended('weir examples/partner', 0))",
			"create schema if not exists " + schema,
			"create table if not exists items (id bigserial primary key, who text not null, name text not null)",
			"create index if not exists items_who on items (who, id)",
		}, o.variant.setUp...) {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// newHandler returns the handler of an instance.
func newHandler(pool *pgxpool.Pool, limited limiter.Partitioned[string], s *signals) (http.Handler, error) {
	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
		Policies: map[string]weirhttp.Policy{"per-user": {
			Limit:   weirhttp.ByKey(limited, weirhttp.Subject(func(r *http.Request) string { return r.PathValue("user") })),
			Cost:    func(*http.Request) int { return cost },
			MaxWait: -1, // a request that is not granted is rejected at once
		}},
		OnRejected: rejected,
		Listener:   s.telemetry,
	})
	if err != nil {
		return nil, err
	}
	i := items{pool}
	api := http.NewServeMux()
	api.Handle(postRoute, s.observe(postRoute, http.HandlerFunc(i.create)))
	api.Handle(getRoute, s.observe(getRoute, limits.Handler(http.HandlerFunc(i.get), "per-user")))
	mux := http.NewServeMux()
	mux.Handle("/", weirhttp.Measure(s.telemetry, nil)(api))
	mux.Handle("GET /metrics", s.metrics) // not measured, like the next: the figures are about what users send
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	return mux, nil
}

// rejected adds to the header of a request that was not granted why the limiter has not decided. It writes no body, so the default
// answers.
func rejected(w http.ResponseWriter, _ *http.Request, r weirhttp.Rejection) {
	_, away := store.OutageKey.From(r.Lease)
	cause := ""
	switch {
	case away:
		cause = storeAway
	case errors.Is(r.Err, context.DeadlineExceeded):
		cause = undecided
	case r.Err != nil:
		if cause = sqlState(r.Err); cause == "" {
			cause = "error"
		}
	default:
		return
	}
	w.Header().Set(limiterError, cause)
}

// items is the service behind the limiter: it stores items and returns the latest items of a user.
type items struct{ pool *pgxpool.Pool }

// An answer is the body of both routes. Now is PostgreSQL's clock when the statement ran, so the load measures time by
// the clock that the limiters use.
type answer struct {
	User  string    `json:"user"`
	Items []string  `json:"items"`
	Now   time.Time `json:"now"`
}

// create is POST /items/create.
func (i items) create(w http.ResponseWriter, r *http.Request) {
	var item struct{ User, Name string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&item); err != nil || item.User == "" || item.Name == "" {
		http.Error(w, `the body must be {"user": "…", "name": "…"}`, http.StatusBadRequest)
		return
	}
	a := answer{User: item.User, Items: []string{item.Name}}
	err := i.pool.QueryRow(r.Context(), "insert into items (who, name) values ($1, $2) returning clock_timestamp()", item.User, item.Name).Scan(&a.Now)
	respond(w, http.StatusCreated, a, err)
}

// get is GET /items/{user}.
func (i items) get(w http.ResponseWriter, r *http.Request) {
	a := answer{User: r.PathValue("user"), Items: []string{}}
	err := i.pool.QueryRow(r.Context(), `
		select coalesce(array_agg(name), '{}'), clock_timestamp()
		from (select name from items where who = $1 order by id desc limit 10) latest`, a.User).Scan(&a.Items, &a.Now)
	respond(w, http.StatusOK, a, err)
}

func respond(w http.ResponseWriter, status int, a answer, err error) {
	if err != nil {
		http.Error(w, "the database does not answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // fails only if the client has gone
}
