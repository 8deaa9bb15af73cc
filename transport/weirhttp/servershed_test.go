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

// A shedding is a limiter that is full, alone and in a pipeline, and the limits around a handler.
type shedding struct {
	full    weirhttp.Policy
	shed    *pipeline.Pipeline
	options weirhttp.LimitsOptions
	perUser *limiter.TokenBucket
	perIP   *limiter.Concurrency
	handler http.Handler
}

// limits returns Limits of the policies per-user, per-ip and shed, with that global one.
func (x *shedding) limits(global, shed weirhttp.Policy) *weirhttp.Limits {
	o := x.options
	o.Global = global
	o.Policies = map[string]weirhttp.Policy{
		"per-user": {Limit: weirhttp.Of(x.perUser)}, "per-ip": {Limit: weirhttp.Of(x.perIP), Quota: 10}, "shed": shed,
	}
	return weir.Must(weirhttp.NewLimits(&o))
}

// A request that is shed has spent no permit, whatever sheds it and wherever that stands, and is answered in the form of
// the limits.
func TestLimits_ShedRequestCostsNothing(t *testing.T) {
	type policy = weirhttp.Policy
	none := policy{}
	inMux := func(h http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", h)
		return mux
	}
	through := func(x *shedding, h http.Handler) http.Handler { return weirhttp.Through(x.shed, nil)(h) }
	places := map[string]func(x *shedding, piped policy) http.Handler{
		"Global with a limiter": func(x *shedding, _ policy) http.Handler {
			return x.limits(x.full, x.full).Handler(x.handler, "per-user", "per-ip")
		},
		"Global with a pipeline": func(x *shedding, p policy) http.Handler {
			return x.limits(p, p).Handler(x.handler, "per-user", "per-ip")
		},
		"the last policy, a limiter": func(x *shedding, _ policy) http.Handler {
			return x.limits(none, x.full).Handler(x.handler, "per-user", "per-ip", "shed")
		},
		"the last policy, a pipeline": func(x *shedding, p policy) http.Handler {
			return x.limits(none, p).Handler(x.handler, "per-user", "per-ip", "shed")
		},
		"a pipeline between others": func(x *shedding, p policy) http.Handler {
			return x.limits(none, p).Handler(x.handler, "per-user", "shed", "per-ip")
		},
		"a pipeline of a route inside": func(x *shedding, p policy) http.Handler {
			l := x.limits(none, p)
			return l.Handler(inMux(l.Handler(x.handler, "shed")), "per-user", "per-ip")
		},
		"a pipeline of other limits inside": func(x *shedding, p policy) http.Handler {
			return x.limits(none, p).Handler(x.limits(p, p).Handler(x.handler), "per-user", "per-ip")
		},
		"Through inside": func(x *shedding, p policy) http.Handler {
			return x.limits(none, p).Handler(through(x, x.handler), "per-user", "per-ip")
		},
		"Through inside, in a mux and a pipeline": func(x *shedding, _ policy) http.Handler {
			outer := policy{Limit: weirhttp.ByPipeline(weir.Must(pipeline.New("outer", ratelimit.New(slots(1, 0), nil))))}
			return x.limits(none, outer).Handler(inMux(through(x, x.handler)), "per-user", "shed", "per-ip")
		},
		"Through inside, two limits around": func(x *shedding, p policy) http.Handler {
			return x.limits(none, p).Handler(x.limits(none, p).Handler(through(x, x.handler), "per-user"), "per-ip")
		},
		"Through outside": func(x *shedding, p policy) http.Handler {
			return weirhttp.Through(x.shed, &weirhttp.ThroughOptions{Body: weirhttp.ProblemJSON})(x.limits(none, p).Handler(x.handler, "per-user", "per-ip"))
		},
	}
	for kind, full := range map[string]func() (limiter.Limiter, pipeline.Strategy){
		"adaptive":    func() (limiter.Limiter, pipeline.Strategy) { l := adaptiveOfOne(); return l, adaptive.New(l, nil) },
		"concurrency": func() (limiter.Limiter, pipeline.Strategy) { l := slots(1, 0); return l, ratelimit.New(l, nil) },
	} {
		for _, headers := range []weirhttp.Headers{weirhttp.NoHeaders, weirhttp.Legacy, weirhttp.Draft11} {
			for place, wrap := range places {
				t.Run(kind+"/"+headers.String()+"/"+place, func(t *testing.T) {
					served := false
					l, s := full()
					require.True(t, weir.Must(l.TryAcquire(t.Context(), 1)).Acquired())
					x := &shedding{
						full: policy{Limit: weirhttp.Of(l)}, shed: weir.Must(pipeline.New("shed", s)),
						options: weirhttp.LimitsOptions{Body: weirhttp.ProblemJSON, Headers: headers},
						perUser: weir.Must(limiter.NewTokenBucket(limiter.PerMinute(10, 10))), perIP: slots(10, 0),
						handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }),
					}
					w := httptest.NewRecorder()
					wrap(x, policy{Limit: weirhttp.ByPipeline(x.shed)}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					assert.Equal(t, http.StatusServiceUnavailable, w.Code)
					assert.False(t, served)
					assert.Equal(t, limiter.Statistics{AvailablePermits: 10}, x.perUser.Statistics())
					assert.Equal(t, limiter.Statistics{AvailablePermits: 10}, x.perIP.Statistics())
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
