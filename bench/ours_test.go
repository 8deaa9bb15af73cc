package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	weirstore "github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/weirpostgres"
	"github.com/weir-go/weir/store/weirredis"
)

// patient are options with which a store waits for a busy server, so that every answer is the server's.
var patient = weirstore.Options{CallTimeout: 5 * time.Second}

// newSchema makes a schema for instances to share. It is dropped at the end of the test.
func newSchema(t testing.TB, pool *pgxpool.Pool) string {
	t.Helper()
	schema := fmt.Sprintf("bench_%d_%d", os.Getpid(), tables.Add(1))
	require.NoError(t, weirpostgres.Migrate(ctx, pool, schema))
	t.Cleanup(func() {
		_, err := pool.Exec(ctx, "drop schema "+schema+" cascade")
		assert.NoError(t, err)
	})
	return schema
}

// inPostgres returns a store of limiters in PostgreSQL.
func inPostgres(t testing.TB, pool *pgxpool.Pool, o weirpostgres.Options) *weirstore.Store {
	t.Helper()
	o.Options = patient
	s, err := weirpostgres.New(pool, &o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// inRedis returns a store of limiters in Redis.
func inRedis(t testing.TB) *weirstore.Store {
	t.Helper()
	s, err := weirredis.New(redisClient(t, goroutines), &weirredis.Options{Prefix: newPrefix(t), Options: patient})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// permits are a limit for each key: n permits in each period.
type permits struct {
	n      int
	period time.Duration
}

var (
	plentiful = permits{plenty, time.Second}
	scarce    = permits{1, time.Hour}
)

// perKey is a token bucket for each key.
func perKey(t testing.TB, s *weirstore.Store, how weirstore.LimiterOptions, limit permits) func(key string) (bool, error) {
	t.Helper()
	l, err := s.PartitionedTokenBucket("bench", limiter.TokenBucketOptions{
		TokenLimit: limit.n, TokensPerPeriod: limit.n, ReplenishmentPeriod: limit.period,
	}, &how)
	require.NoError(t, err)
	return func(key string) (bool, error) {
		lease, err := l.TryAcquire(ctx, key, 1)
		if err == nil && !lease.Acquired() {
			err, _ = weirstore.OutageKey.From(lease)
		}
		return lease.Acquired(), err
	}
}
