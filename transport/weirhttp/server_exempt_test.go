package weirhttp

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
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
			limits := Must(New(Options{Global: Policy{Limiter: c.l}}))
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

func getPath(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}
