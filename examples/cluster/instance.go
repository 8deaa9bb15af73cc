package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/weirpostgres"
	"github.com/weir-go/weir/store/weirredis"
	"github.com/weir-go/weir/tools/testserver"
)

// rule is the limit that the instances share. That it is shared is said only in newLimiter.
var rule = limiter.FixedWindowOptions{PermitLimit: 60, Window: 2 * time.Second}

// serve runs one instance, a web service whose calls go through the shared limiter, until ctx is done.
func serve(ctx context.Context, url, address string) error {
	limited, stop, err := newLimiter(ctx, url)
	if err != nil {
		return err
	}
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	// The service does not depend on whether the limiter is shared.
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lease, err := limited.TryAcquire(r.Context(), 1)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !lease.Acquired():
			http.Error(w, "too many calls", http.StatusTooManyRequests)
		default:
			defer lease.Release()
			fmt.Fprintln(w, "done")
		}
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// newLimiter returns the shared limiter, and a function that closes its store and the client.
func newLimiter(ctx context.Context, url string) (l limiter.Limiter, stop func(), err error) {
	open := openRedis
	if scheme(url) == "PostgreSQL" {
		open = openPostgres
	}
	shared, disconnect, err := open(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		_ = shared.Close()
		disconnect()
	}
	if l, err = shared.FixedWindow("example/cluster", rule, nil); err != nil {
		stop()
		return nil, nil, err
	}
	return l, stop, nil
}

func openRedis(_ context.Context, url string) (*store.Store, func(), error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, err
	}
	o.ContextTimeoutEnabled = true // the store's CallTimeout ends calls
	o.DialerRetries = 1            // a server that is away is noticed at once
	client := redis.NewClient(o)
	shared, err := weirredis.New(client, nil)
	return shared, func() { _ = client.Close() }, err
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
	return shared, pool.Close, err
}

func scheme(url string) string {
	if strings.HasPrefix(url, "postgres") {
		return "PostgreSQL"
	}
	return "Redis"
}

// findStore returns the URL of a server for the limiter's state, and a function that stops
// the server if it was started here.
func findStore(ctx context.Context) (url string, stop func(), err error) {
	for _, start := range []func(context.Context) (*testserver.Server, error){testserver.StartRedis, testserver.StartPostgres} {
		if os.Getenv("WEIR_REDIS_URL") == "" && os.Getenv("WEIR_POSTGRES_URL") != "" {
			start = testserver.StartPostgres
		}
		s, notFound := start(ctx)
		if notFound == nil {
			return s.URL, s.Stop, nil
		}
		if err = errors.Join(err, notFound); !errors.Is(notFound, testserver.ErrNotFound) {
			return "", nil, err
		}
	}
	return "", nil, fmt.Errorf("this example needs Redis or PostgreSQL, one of the two: %w", err)
}
