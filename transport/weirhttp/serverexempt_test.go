package weirhttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

func TestLimits_ExemptInThroughMiddleware(t *testing.T) {
	for name, c := range map[string]struct {
		l     *always
		named bool
		asked int
		codes [2]int // of what is exempt, and of another
	}{
		"the mux is named, nothing is left": {no(), true, 1, [2]int{200, 429}},
		"the mux is named, there is enough": {yes(), true, 1, [2]int{200, 200}},
		"it is not, and there is enough":    {yes(), false, 2, [2]int{200, 200}},
		"it is not, and nothing is left":    {no(), false, 2, [2]int{429, 429}},
	} {
		t.Run(name, func(t *testing.T) {
			limits := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limiter: c.l}}))
			mux := http.NewServeMux()
			h := handler(func(_ http.ResponseWriter, r *http.Request) {
				_, holds := LeaseFrom(r.Context())
				assert.Equal(t, r.URL.Path != "/healthz", holds)
			})
			mux.Handle("/healthz", limits.Exempt(h))
			mux.Handle("/", h)
			if c.named {
				limits.ExemptIn(mux)
			}
			middleware := handler(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, r) })
			outside := limits.Handler(limits.Handler(middleware))
			for i, path := range []string{"/healthz", "/"} {
				w := getPath(outside, path)
				assert.Equal(t, c.codes[i], w.Code, path)
			}
			granted, undone := 0, 0
			if c.l.grant {
				granted, undone = 1, c.asked-1 // what was granted to the exempt one is undone
			}
			c.l.check(t, c.asked, granted, undone)
		})
	}
}

// Exempt excludes what is further inside, too: h can be middleware around a handler with the limits.
func TestLimits_ExemptAroundLimits(t *testing.T) {
	full := no()
	limits := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limiter: full}}))
	other := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limiter: no()}}))
	h := handler(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Id", r.PathValue("id")) })
	logging := func(h http.Handler) http.Handler {
		return handler(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			w.Header().Set("Pattern", r.Pattern)
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", limits.Handler(h))
	for name, exempt := range map[string]http.Handler{
		"the limits themselves": limits.Exempt(mux),
		"middleware around":     limits.Exempt(logging(mux)),
		"limits around":         limits.Handler(limits.Exempt(logging(limits.Handler(mux)))),
	} {
		w := getPath(exempt, "/orders/7")
		assert.Equal(t, http.StatusOK, w.Code, name)
		assert.Equal(t, "7", w.Header().Get("Id"), name)
	}
	assert.Equal(t, "/orders/{id}", getPath(logging(limits.Exempt(mux)), "/orders/7").Header().Get("Pattern"))
	full.check(t, 0, 0, 0)
	assert.Equal(t, http.StatusTooManyRequests, getPath(limits.Exempt(other.Handler(h)), "/").Code, "from these limits only")
	assert.Equal(t, http.StatusTooManyRequests, getPath(mux, "/orders/7").Code, "the same handler elsewhere")
}

// What limits around have granted is undone, and they do not tell the client that it was spent.
func TestLimits_ExemptUndoesQuotas(t *testing.T) {
	l := bucket(t, 10)
	limits := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Global: Policy{Limiter: l}}))
	exempt := limits.Exempt(handler(func(http.ResponseWriter, *http.Request) {}))
	hidden := handler(func(w http.ResponseWriter, r *http.Request) { exempt.ServeHTTP(w, r) })
	w := get(limits.Handler(hidden))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.EqualValues(t, 10, l.Statistics().AvailablePermits)
	assert.Empty(t, w.Header())
}

func getPath(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// The handler is found in a mux in a mux, and behind the middleware of this package.
func TestLimits_ExemptIsFound(t *testing.T) {
	h := handler(func(http.ResponseWriter, *http.Request) {})
	p := weir.Must(pipeline.New("p"))
	muxOf := func(h http.Handler) *http.ServeMux {
		mux := http.NewServeMux()
		mux.Handle("/healthz", h)
		return mux
	}
	itself := http.NewServeMux()
	itself.Handle("/", itself)
	for name, c := range map[string]struct {
		within func(l, other *Limits) http.Handler
		want   int
	}{
		"in a mux":                      {func(l, _ *Limits) http.Handler { return muxOf(l.Exempt(h)) }, 200},
		"in a mux in a mux":             {func(l, _ *Limits) http.Handler { return muxOf(muxOf(l.Exempt(h))) }, 200},
		"behind a pipeline":             {func(l, _ *Limits) http.Handler { return muxOf(Through(p, nil)(l.Exempt(h))) }, 200},
		"behind a pipeline, no mux":     {func(l, _ *Limits) http.Handler { return Through(p, nil)(l.Exempt(h)) }, 200},
		"behind other limits":           {func(l, other *Limits) http.Handler { return muxOf(other.Handler(l.Exempt(h))) }, 200},
		"exempt from other limits, too": {func(l, other *Limits) http.Handler { return muxOf(other.Exempt(l.Exempt(h))) }, 200},
		"a mux behind its own limits":   {func(l, _ *Limits) http.Handler { return muxOf(l.Handler(muxOf(l.Exempt(h)))) }, 200},
		"exempt from other limits only": {func(_, other *Limits) http.Handler { return muxOf(other.Exempt(h)) }, 429},
		"behind other middleware": {func(l, _ *Limits) http.Handler {
			exempt := l.Exempt(h)
			return muxOf(handler(func(w http.ResponseWriter, r *http.Request) { exempt.ServeHTTP(w, r) }))
		}, 429},
		"a mux that has itself in it": {func(l, _ *Limits) http.Handler { l.Exempt(h); return itself }, 429},
	} {
		t.Run(name, func(t *testing.T) {
			l, other := weir.Must(NewLimits(&LimitsOptions{Global: Policy{Limiter: no()}})), weir.Must(NewLimits(&LimitsOptions{}))
			assert.Equal(t, c.want, getPath(l.Handler(c.within(l, other)), "/healthz").Code)
		})
	}
}

func TestPreflight(t *testing.T) {
	r := httptest.NewRequest(http.MethodOptions, "/", nil)
	assert.False(t, Preflight(r))
	r.Header.Set("Origin", "https://example.com")
	assert.False(t, Preflight(r))
	r.Header.Set("Access-Control-Request-Method", "PUT")
	assert.True(t, Preflight(r))
	r.Method = http.MethodGet
	assert.False(t, Preflight(r))
}
