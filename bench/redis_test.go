package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	weirstore "github.com/weir-go/weir/store"
)

// perSecond is a rate that no server reaches.
const perSecond = 1 << 20

// BenchmarkRedis compares decisions in Redis: PING and an empty script as the floor, the peers, and ours.
func BenchmarkRedis(b *testing.B) {
	compareRemotely(b, []remote{
		{name: "floor-ping", open: func(b *testing.B, _ []string) func(string) (bool, error) {
			client := redisClient(b, goroutines)
			return func(string) (bool, error) { return true, client.Ping(ctx).Err() }
		}},
		{name: "floor-script", open: func(b *testing.B, keys []string) func(string) (bool, error) {
			client, script := redisClient(b, goroutines), redis.NewScript("return 1")
			return seen(b, keys, func(key string) (bool, error) {
				n, err := script.Run(ctx, client, []string{key}).Int()
				return n == 1, err
			})
		}},
		{name: "redis_rate", open: func(b *testing.B, keys []string) func(string) (bool, error) {
			l := redis_rate.NewLimiter(redisClient(b, goroutines))
			limit := redis_rate.Limit{Rate: perSecond, Burst: perSecond, Period: time.Second}
			return seen(b, keys, func(key string) (bool, error) {
				r, err := l.Allow(ctx, key, limit)
				return err == nil && r.Allowed == 1, err
			})
		}},
		// It retries a few times if another caller was faster, and then fails.
		{name: "throttled", want: anything, open: func(b *testing.B, keys []string) func(string) (bool, error) {
			client := redisClient(b, goroutines)
			s, err := goredisstore.NewCtx(client, newPrefix(b))
			require.NoError(b, err)
			l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerSec(perSecond), MaxBurst: perSecond})
			require.NoError(b, err)
			return seen(b, keys, func(key string) (bool, error) {
				limited, _, err := l.RateLimitCtx(ctx, key, 1)
				return err == nil && !limited, err
			})
		}},
		{name: "ulule", open: func(b *testing.B, keys []string) func(string) (bool, error) {
			s, err := ulule.NewStoreWithOptions(redisClient(b, goroutines), limiter.StoreOptions{Prefix: newPrefix(b)})
			require.NoError(b, err)
			l := limiter.New(s, limiter.Rate{Period: time.Minute, Limit: plenty})
			return seen(b, keys, func(key string) (bool, error) {
				c, err := l.Get(ctx, key)
				return err == nil && !c.Reached, err
			})
		}},

		{name: "weir", open: redisOurs(weirstore.LimiterOptions{}, plentiful)},
		{name: "weir-block-100", local: true, open: redisOurs(weirstore.LimiterOptions{Block: 100}, plentiful)},
		{name: "weir-rejected", want: rejecting, open: redisOurs(weirstore.LimiterOptions{}, scarce)},
		{name: "weir-rejected-cached", want: rejecting, local: true, open: redisOurs(weirstore.LimiterOptions{CacheRejections: true}, scarce)},
	})
}

func redisOurs(how weirstore.LimiterOptions, limit permits) func(b *testing.B, keys []string) func(string) (bool, error) {
	return func(b *testing.B, keys []string) func(string) (bool, error) {
		return seen(b, keys, perKey(b, inRedis(b), how, limit))
	}
}

// newPrefix returns a prefix for keys, which are deleted at the end of the test.
func newPrefix(t testing.TB) string {
	t.Helper()
	client := redisClient(t, 1)
	prefix := fmt.Sprintf("bench%d-%d", os.Getpid(), tables.Add(1))
	t.Cleanup(func() {
		all := client.Scan(ctx, 0, prefix+"*", 10_000).Iterator()
		for all.Next(ctx) {
			assert.NoError(t, client.Del(ctx, all.Val()).Err())
		}
		assert.NoError(t, all.Err())
	})
	return prefix
}
