package weirhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/weirhttp"
)

// remote is a limiter on another machine: its statistics take a round trip, and its leases know what remains.
type remote struct {
	answer limiter.Lease
	asked  int
}

// left is the owner of leases that know what remains.
type left int64

func (left) Release(int, int64)                   {}
func (left) Refund(int, int64)                    {}
func (l left) Remaining(int, int64) (int64, bool) { return int64(l), true }

func knows(n int64) limiter.Lease { return custom.GrantedBy(left(n), 1, 0) }

func (r *remote) TryAcquire(context.Context, int) (limiter.Lease, error) { return r.answer, nil }

func (r *remote) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.TryAcquire(ctx, n)
}

func (r *remote) Limits() rate.Limits {
	return limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Minute}.Limits()
}

func (r *remote) Statistics() limiter.Statistics {
	r.asked++
	return limiter.Statistics{AvailablePermits: 9}
}

func TestQuota_RemainingOfTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		answer limiter.Lease
		field  string
		asked  int
	}{
		"granted, and known":       {knows(7), `"p";r=7;t=60`, 0},
		"granted, and not known":   {custom.Granted(1, nil), `"p";r=9;t=60`, 1},
		"rejected, and known":      {custom.RejectedKnowing(time.Second, "", 0), `"p";r=0;t=1`, 0},
		"rejected, and not known":  {custom.Rejected(time.Second, ""), `"p";r=9;t=1`, 1},
		"granted, and none remain": {knows(-3), `"p";r=0;t=60`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := &remote{answer: c.answer}
			limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{
				Policies: map[string]weirhttp.Policy{"p": {Limit: weirhttp.Of(l)}}, Headers: weirhttp.Draft11,
			})
			require.NoError(t, err)
			w := httptest.NewRecorder()
			limits.Handler(http.NotFoundHandler(), "p").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			assert.Equal(t, c.field, w.Header().Get("RateLimit"))
			assert.Equal(t, c.asked, l.asked, "calls of Statistics")
		})
	}
}

// Without a Quota the fields tell the limits of the key, as they are now.
func TestQuota_OfEachKey(t *testing.T) {
	o := limiter.TokenBucketOptions{TokenLimit: 20, TokensPerPeriod: 10, ReplenishmentPeriod: time.Hour}
	each := weir.Must(weirhttp.PerKey(limiter.FactoryFor[string](o), nil))
	defer func() { _ = each.Close() }()
	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{Headers: weirhttp.Draft11, Policies: map[string]weirhttp.Policy{
		"p": {Limit: weirhttp.ByKey(each, func(*http.Request) string { return "k" })},
	}})
	require.NoError(t, err)
	told := func() string {
		w := httptest.NewRecorder()
		limits.Handler(http.NotFoundHandler(), "p").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Header().Get("RateLimit-Policy") + " " + w.Header().Get("RateLimit")
	}
	assert.Equal(t, `"p";q=20;w=7200 "p";r=19;t=3600`, told())
	o.TokenLimit = 40
	require.NoError(t, each.Apply(func(_ string, l limiter.Limiter) error { return l.(*limiter.TokenBucket).Reconfigure(o) }))
	assert.Equal(t, `"p";q=40;w=14400 "p";r=38;t=3600`, told())
}

func TestQuota_LimiterThatCannotBeAsked(t *testing.T) {
	l := &remote{answer: custom.Rejected(time.Second, limiter.ReasonUnavailable)}
	limits, err := weirhttp.NewLimits(&weirhttp.LimitsOptions{Policies: map[string]weirhttp.Policy{"p": {Limit: weirhttp.Of(l)}}})
	require.NoError(t, err)
	handlers := map[string]http.Handler{
		"a policy":   limits.Handler(http.NotFoundHandler(), "p"),
		"a pipeline": weirhttp.Through(weir.Must(pipeline.New("p", ratelimit.New(l, nil))), nil)(http.NotFoundHandler()),
	}
	for name, h := range handlers {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, name)
		assert.Equal(t, "1", w.Header().Get("Retry-After"), name)
	}
}

// An answer to an admitted request asks for its key once, and not again for the fields.
func TestQuota_AsksForKeyOnce(t *testing.T) {
	asked := 0
	key := func(*http.Request) string { asked++; return "k" }
	for name, each := range map[string]limiter.Factory[string]{
		"q=20;w=3600|r=19;t=3600": limiter.FactoryFor[string](limiter.TokenBucketOptions{
			TokenLimit: 20, TokensPerPeriod: 20, ReplenishmentPeriod: time.Hour,
		}),
		"q=10;w=3600|r=9;t=3600": limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}),
		"q=30;w=3600|r=29;t=3600": limiter.FactoryFor[string](limiter.SlidingWindowOptions{
			PermitLimit: 30, Window: time.Hour, SegmentsPerWindow: 4,
		}),
	} {
		keyed := weir.Must(limiter.NewPartitionedByKey(key, each, nil))
		limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{
			Policies: map[string]weirhttp.Policy{"p": {Limit: weirhttp.ByRequest(keyed)}}, Headers: weirhttp.Draft11,
		}))
		asked = 0
		w := httptest.NewRecorder()
		limits.Handler(http.NotFoundHandler(), "p").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		assert.Equal(t, name, strings.TrimPrefix(w.Header().Get("RateLimit-Policy"), `"p";`)+"|"+strings.TrimPrefix(w.Header().Get("RateLimit"), `"p";`))
		assert.Equal(t, 1, asked, name)
		require.NoError(t, keyed.Close())
	}
}
