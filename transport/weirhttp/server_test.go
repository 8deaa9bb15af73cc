package weirhttp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
)

func TestNewLimits_ReportsAllProblems(t *testing.T) {
	var none *limiter.TokenBucket
	_, err := NewLimits(&LimitsOptions{
		Headers: 7,
		Global:  Policy{MaxWait: time.Second},
		Policies: map[string]Policy{
			"empty":  {},
			"nil":    {Limit: Of(none)},
			"keyed":  {Limit: ByKey(nil, nil)},
			"none":   {Limit: ByPipeline(nil)},
			"status": {Limit: Of(yes()), Status: 200, Timeout: -1, Headers: 8},
			"global": {Limit: Of(yes())},
			"":       {Limit: Of(yes())},
		},
	})
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	for _, text := range []string{
		`weirhttp: Headers must be NoHeaders, Legacy or Draft11, got Headers(7)`, `Policies[status].Headers must be NoHeaders, Legacy or Draft11, got Headers(8)`,
		`Global.Limit must be made by Of, ByKey, ByRequest or ByPipeline`, `Policies[empty].Limit must be made by Of`,
		`Policies[nil].Limit must not be made of nil`, `Policies[keyed].Limit must not be made of nil`, `Policies[none].Limit must not be made of nil`,
		`Policies[status].Status must be from 400 to 599, or 0, got 200`, `Policies[status].Timeout must be at least 0, got -1ns`,
		`Policies[global] must have another name, which is reserved for Global`, `Policies[] must have a name`,
	} {
		assert.ErrorContains(t, err, text)
	}
}

func TestLimits_WrapUnknownPolicy(t *testing.T) {
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"a": {Limit: Of(yes())}}}))
	_, err := l.Wrap("a", "b", "c")
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	assert.ErrorContains(t, err, `names[1] must be the name of a policy ("a"), got "b"`)
	assert.ErrorContains(t, err, `names[2] must be the name of a policy ("a"), got "c"`)
	_, err = weir.Must(NewLimits(nil)).Wrap("per-usr")
	require.EqualError(t, err, `weirhttp: names[0] must be the name of a policy (there are none), got "per-usr"`)
	many := make(map[string]Policy)
	for i := range 12 {
		many["p"+string(rune('a'+i))] = Policy{Limit: Of(yes())}
	}
	_, err = weir.Must(NewLimits(&LimitsOptions{Policies: many})).Wrap("per-usr")
	require.ErrorContains(t, err, `"pi", "pj", others`)
	assert.Panics(t, func() { l.Handler(served, "b") })
	r := registry.New(nil)
	defer r.Close(context.WithoutCancel(t.Context()))
	for _, name := range []string{"global", "defined"} {
		require.NoError(t, r.Define(name, func(*registry.Builder) error { return nil }))
	}
	_, err = weir.Must(NewLimits(&LimitsOptions{Registry: r})).Wrap("defined")
	require.NoError(t, err)
	_, err = weir.Must(NewLimits(&LimitsOptions{Registry: r})).Wrap("global")
	require.ErrorIs(t, err, weir.ErrInvalidOptions, "the name is that of the global policy")
	_, err = l.Wrap("a", "a")
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
	assert.ErrorContains(t, err, `weirhttp: names[1] must not repeat an earlier name, got "a"`)
}

func TestLimits_NilArguments(t *testing.T) {
	l := weir.Must(NewLimits(nil))
	for _, register := range []func(){
		func() { l.Handler(nil) },
		func() { l.Handler(http.HandlerFunc(nil)) },
		func() { Through(nil, nil)(nil) },
		func() { PerIP(0, time.Second) },
	} {
		func() {
			defer func() {
				err, _ := recover().(error)
				assert.ErrorIs(t, err, weir.ErrInvalidOptions)
			}()
			register()
		}()
	}
	assert.Equal(t, http.StatusOK, get(Through(nil, nil)(served)).Code, "no pipeline only runs the handler")
}

// The table follows the tests of ASP.NET's middleware.
func TestLimits_WhichPolicyAnswers(t *testing.T) {
	for _, c := range []struct {
		name           string
		global, policy limiter.Limiter
		own            Body // of the policy
		want           int
		onRejected     bool // the options' own is called
	}{
		{"no policy at all", nil, nil, nil, 200, false},
		{"the global one grants", yes(), nil, nil, 200, false},
		{"the global one rejects", no(), nil, nil, 418, true},
		{"the policy rejects", nil, no(), nil, 418, true},
		{"the policy rejects and answers", yes(), no(), answers(404), 404, false},
		{"the global one rejects, the policy would not", no(), yes(), answers(404), 418, true},
		{"both would reject", no(), no(), answers(404), 418, true},
		{"both grant", yes(), yes(), answers(404), 200, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			called := false
			o := LimitsOptions{OnRejected: func(w http.ResponseWriter, _ *http.Request, _ Rejection) {
				called = true
				w.WriteHeader(http.StatusTeapot)
			}}
			var route []string
			if c.global != nil {
				o.Global.Limit = Of(c.global)
			}
			if c.policy != nil {
				o.Policies = map[string]Policy{"p": {Limit: Of(c.policy), OnRejected: c.own}}
				route = []string{"p"}
			}
			assert.Equal(t, c.want, get(weir.Must(NewLimits(&o)).Handler(served, route...)).Code)
			assert.Equal(t, c.onRejected, called)
		})
	}
}

func TestLimits_GlobalLimiterIsChargedOnce(t *testing.T) {
	global := yes()
	l := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(global)}, Policies: map[string]Policy{"p": {Limit: Of(no())}, "q": {Limit: Of(yes())}}}))
	assert.Equal(t, 429, get(l.Handler(served, "p")).Code)
	global.check(t, 1, 0, 1) // not asked a second time, and given back
	assert.Equal(t, 200, get(weir.Must(l.Wrap())(l.Handler(l.Handler(served, "q"), "q"))).Code)
	global.check(t, 2, 1, 1)

	other := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limit: Of(yes())}, Policies: map[string]Policy{"q": {Limit: Of(yes())}}}))
	assert.Equal(t, 200, get(weir.Must(l.Wrap())(weir.Must(other.Wrap())(l.Handler(served, "q")))).Code)
	global.check(t, 3, 2, 1)
}

func TestLimits_Exempt(t *testing.T) {
	global := no()
	l := weir.Must(NewLimits(&LimitsOptions{
		Global:   Policy{Limit: Of(global)},
		Policies: map[string]Policy{"p": {Limit: Of(no())}},
		Exempt:   func(r *http.Request) bool { return r.URL.Path == "/metrics" },
	}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", l.Handler(served, "p"))
	mux.Handle("/d", served)
	for _, h := range []http.Handler{mux, weir.Must(l.Wrap())(mux)} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		assert.Equal(t, 200, w.Code)
	}
	global.check(t, 0, 0, 0)
	w := httptest.NewRecorder()
	weir.Must(l.Wrap())(mux).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/d", nil))
	assert.Equal(t, 429, w.Code)
}

func TestLimits_AbortedRequestIsNoRejection(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first := yes()
	l := weir.Must(NewLimits(&LimitsOptions{
		Global:     Policy{Limit: Of(first)},
		Policies:   map[string]Policy{"p": {Limit: Of(yes()), FailOpen: true, Cost: func(*http.Request) int { cancel(); return 1 }}},
		OnRejected: func(http.ResponseWriter, *http.Request, Rejection) { t.Error("called") },
	}))
	w := httptest.NewRecorder()
	l.Handler(http.NotFoundHandler(), "p").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	assert.Equal(t, StatusClientClosedRequest, w.Code)
	assert.Empty(t, w.Body.String())
	first.check(t, 1, 0, 1)
}
