package weirhttp_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/weirhttp"
)

// A request that is shed has spent no permit, whatever sheds it and wherever that stands, and is answered in the form of
// the limits.
func TestLimits_ShedRequestCostsNothing(t *testing.T) {
	type limits = weirhttp.LimitsOptions
	policies := func(p map[string]weirhttp.Policy, add weirhttp.Policy) map[string]weirhttp.Policy {
		all := maps.Clone(p)
		all["shed"] = add
		return all
	}
	for kind, full := range map[string]func(t *testing.T) (limiter.Limiter, pipeline.Strategy){
		"adaptive": func(t *testing.T) (limiter.Limiter, pipeline.Strategy) {
			t.Helper()
			l := weir.Must(adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: 1, InitialLimit: 1, MaxLimit: 1}))
			require.True(t, weir.Must(l.TryAcquire(t.Context(), 1)).Acquired())
			return l, adaptive.New(l, nil)
		},
		"concurrency": func(t *testing.T) (limiter.Limiter, pipeline.Strategy) {
			t.Helper()
			l := slots(1, 0)
			require.True(t, weir.Must(l.TryAcquire(t.Context(), 1)).Acquired())
			return l, ratelimit.New(l, nil)
		},
	} {
		for _, headers := range []weirhttp.Headers{weirhttp.NoHeaders, weirhttp.Legacy, weirhttp.Draft11} {
			for place, handler := range map[string]func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler{
				"Global with a limiter": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					l, _ := full(t)
					o.Global, o.Policies = weirhttp.Policy{Limit: weirhttp.Of(l)}, perUser
					return weir.Must(weirhttp.NewLimits(&o)).Handler(h, "per-user", "per-ip")
				},
				"Global with a pipeline": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					o.Global, o.Policies = weirhttp.Policy{Limit: weirhttp.ByPipeline(weir.Must(pipeline.New("shed", s)))}, perUser
					return weir.Must(weirhttp.NewLimits(&o)).Handler(h, "per-user", "per-ip")
				},
				"the last policy, a limiter": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					l, _ := full(t)
					o.Policies = policies(perUser, weirhttp.Policy{Limit: weirhttp.Of(l)})
					return weir.Must(weirhttp.NewLimits(&o)).Handler(h, "per-user", "per-ip", "shed")
				},
				"the last policy, a pipeline": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					o.Policies = policies(perUser, weirhttp.Policy{Limit: weirhttp.ByPipeline(weir.Must(pipeline.New("shed", s)))})
					return weir.Must(weirhttp.NewLimits(&o)).Handler(h, "per-user", "per-ip", "shed")
				},
				"a pipeline between others": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					o.Policies = policies(perUser, weirhttp.Policy{Limit: weirhttp.ByPipeline(weir.Must(pipeline.New("shed", s)))})
					return weir.Must(weirhttp.NewLimits(&o)).Handler(h, "per-user", "shed", "per-ip")
				},
				"a pipeline of a route inside": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					o.Policies = policies(perUser, weirhttp.Policy{Limit: weirhttp.ByPipeline(weir.Must(pipeline.New("shed", s)))})
					l := weir.Must(weirhttp.NewLimits(&o))
					mux := http.NewServeMux()
					mux.Handle("/", l.Handler(h, "shed"))
					return l.Handler(mux, "per-user", "per-ip")
				},
				"a pipeline of other limits inside": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					inner := o
					inner.Global = weirhttp.Policy{Limit: weirhttp.ByPipeline(weir.Must(pipeline.New("shed", s)))}
					o.Policies = perUser
					return weir.Must(weirhttp.NewLimits(&o)).Handler(weir.Must(weirhttp.NewLimits(&inner)).Handler(h), "per-user", "per-ip")
				},
				"Through inside": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					o.Policies = perUser
					through := weirhttp.Through(weir.Must(pipeline.New("shed", s)), nil)
					return weir.Must(weirhttp.NewLimits(&o)).Handler(through(h), "per-user", "per-ip")
				},
				"Through inside, in a mux and a pipeline": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					o.Policies = policies(perUser, weirhttp.Policy{Limit: weirhttp.ByPipeline(weir.Must(pipeline.New("outer", ratelimit.New(slots(1, 0), nil))))})
					mux := http.NewServeMux()
					mux.Handle("/", weirhttp.Through(weir.Must(pipeline.New("shed", s)), nil)(h))
					return weir.Must(weirhttp.NewLimits(&o)).Handler(mux, "per-user", "shed", "per-ip")
				},
				"Through inside, two limits around": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					inner, outer := o, o
					inner.Policies = map[string]weirhttp.Policy{"per-user": perUser["per-user"]}
					outer.Policies = map[string]weirhttp.Policy{"per-ip": perUser["per-ip"]}
					through := weirhttp.Through(weir.Must(pipeline.New("shed", s)), nil)(h)
					through = weir.Must(weirhttp.NewLimits(&inner)).Handler(through, "per-user")
					return weir.Must(weirhttp.NewLimits(&outer)).Handler(through, "per-ip")
				},
				"Through outside": func(t *testing.T, o limits, perUser map[string]weirhttp.Policy, h http.Handler) http.Handler {
					_, s := full(t)
					o.Policies = perUser
					through := weirhttp.Through(weir.Must(pipeline.New("shed", s)), &weirhttp.ThroughOptions{Body: weirhttp.ProblemJSON})
					return through(weir.Must(weirhttp.NewLimits(&o)).Handler(h, "per-user", "per-ip"))
				},
			} {
				t.Run(kind+"/"+headers.String()+"/"+place, func(t *testing.T) {
					perUser, perIP := weir.Must(limiter.NewTokenBucket(limiter.PerMinute(10, 10))), slots(10, 0)
					served := false
					h := handler(t, limits{Body: weirhttp.ProblemJSON, Headers: headers}, map[string]weirhttp.Policy{
						"per-user": {Limit: weirhttp.Of(perUser)}, "per-ip": {Limit: weirhttp.Of(perIP), Quota: 10},
					}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }))
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					assert.Equal(t, http.StatusServiceUnavailable, w.Code)
					assert.False(t, served)
					assert.Equal(t, limiter.Statistics{AvailablePermits: 10}, perUser.Statistics())
					assert.Equal(t, limiter.Statistics{AvailablePermits: 10}, perIP.Statistics())
					assert.Equal(t, []string{"Content-Length", "Content-Type", "X-Content-Type-Options"}, slices.Sorted(maps.Keys(w.Header())))
					assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
				})
			}
		}
	}
}

// What a handler has used stays spent, also if the pipeline then ends with an error.
func TestLimits_FailedRequestIsSpent(t *testing.T) {
	l := weir.Must(limiter.NewTokenBucket(limiter.PerMinute(10, 10)))
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Global: weirhttp.Policy{Limit: weirhttp.Of(l)}, Headers: weirhttp.Draft11}))
	broken := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		_, _ = next.Run(ctx)
		return nil, pipeline.ErrRejected
	})
	handled := 0
	h := limits.Handler(weirhttp.Through(weir.Must(pipeline.New("p", broken)), nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled++ })))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, 1, handled)
	assert.EqualValues(t, 9, l.Statistics().AvailablePermits)
	assert.Equal(t, `"global";r=9;t=6`, w.Header().Get("RateLimit"))
}
