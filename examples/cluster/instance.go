package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/weirpostgres"
	"github.com/weir-go/weir/store/weirredis"
)

// retryAfter is a header with the time after which to come back, in milliseconds. The standard
// header has whole seconds only.
const retryAfter = "Retry-After-Ms"

// serve runs one instance: a web service whose calls go through the shared limiter. It prints
// the address that it listens on, and ends when its standard input ends.
func serve(ctx context.Context, url string, in io.Reader, out io.Writer) error {
	shared, closeStore, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer closeStore()
	limited, err := shared.FixedWindow("example/cluster", rule, nil)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler(limited)}
	go func() {
		_, _ = io.Copy(io.Discard, in) // ends when the parent closes it or has ended
		_ = server.Close()
	}()
	_, _ = fmt.Fprintln(out, listener.Addr())
	if err := server.Serve(listener); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// handler is the service. It does not depend on whether the limiter is shared.
func handler(limited limiter.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := limited.TryAcquire(r.Context(), 1)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer lease.Release()
		if !lease.Acquired() {
			wait, _ := lease.RetryAfter()
			w.Header().Set(retryAfter, strconv.FormatInt(wait.Milliseconds()+1, 10))
			http.Error(w, "too many calls "+lease.Reason(), http.StatusTooManyRequests)
			return
		}
		_, _ = fmt.Fprintln(w, "done")
	})
}

// open returns the store that the URL names, and a function that closes it and the client.
func open(ctx context.Context, url string) (*store.Store, func(), error) {
	if scheme(url) == "PostgreSQL" {
		return openPostgres(ctx, url)
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	o.ContextTimeoutEnabled = true // the store's CallTimeout ends calls
	o.DialerRetries = 1            // a server that is away is noticed at once
	client := redis.NewClient(o)
	shared, err := weirredis.New(client, nil)
	if err != nil {
		return nil, nil, err
	}
	return shared, func() {
		_ = shared.Close()
		_ = client.Close()
	}, nil
}

func openPostgres(ctx context.Context, url string) (*store.Store, func(), error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	if err := weirpostgres.Migrate(ctx, pool, ""); err != nil { // every instance may call it
		return nil, nil, err
	}
	shared, err := weirpostgres.New(pool, nil)
	if err != nil {
		return nil, nil, err
	}
	return shared, func() {
		_ = shared.Close()
		pool.Close()
	}, nil
}

func scheme(url string) string {
	if strings.HasPrefix(url, "postgres") {
		return "PostgreSQL"
	}
	return "Redis"
}
