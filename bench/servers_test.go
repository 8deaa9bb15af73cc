package bench

import (
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/tools/testserver"
)

// postgres returns a pool of connections, with these settings, to the server that all tests share.
func postgres(t testing.TB, settings map[string]string, connections int) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(testserver.Postgres(t).URL)
	require.NoError(t, err)
	maps.Copy(config.ConnConfig.RuntimeParams, settings)
	config.MaxConns = int32(connections)
	config.ConnConfig.ConnectTimeout = 10 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	openAll(t, pool)
	return pool
}

// openAll opens the connections of a pool, so that this is not part of what is measured.
func openAll(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	var open []*pgxpool.Conn
	for range pool.Config().MaxConns {
		c, err := pool.Acquire(ctx)
		require.NoError(t, err)
		open = append(open, c)
	}
	for _, c := range open {
		c.Release()
	}
}

// redisClient returns a client, with that many connections, of the server that all tests share.
func redisClient(t testing.TB, connections int) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(testserver.Redis(t).URL)
	require.NoError(t, err)
	o.PoolSize = connections
	o.MaxRetries = -1              // errors are reported
	o.ContextTimeoutEnabled = true // as weirredis asks for
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Ping(ctx).Err())
	return client
}
