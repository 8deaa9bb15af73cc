package weirhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/weirhttp"
	"github.com/weir-go/weir/weirtest"
)

// A client with a second line of the header of its key gets no limiter of its own, whatever it writes into the lines.
func TestLimits_AmbiguousKey(t *testing.T) {
	perKey := weir.Must(weirhttp.PerKey(limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 2, Window: time.Hour}), nil))
	defer func() { _ = perKey.Close() }()
	apiKey := weirhttp.Header("X-Api-Key")
	for name, key := range map[string]weirhttp.Key{
		"header": apiKey, "composite": weirhttp.Composite(weirhttp.Route(), apiKey),
		"subject": weirhttp.Subject(func(r *http.Request) string { return apiKey(r) }),
	} {
		for status, p := range map[int]weirhttp.Policy{
			http.StatusBadRequest: {Limit: weirhttp.ByKey(perKey, key), FailOpen: true, Status: http.StatusServiceUnavailable},
			http.StatusOK:         {Limit: weirhttp.ByKey(perKey, key), Shadow: true},
		} {
			events := &weirtest.Recorder{}
			limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Policies: map[string]weirhttp.Policy{"per-key": p}, Listener: events}))
			h := limits.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "per-key")
			for i := range 10 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, keyRequest("X-Api-Key", "made-up-"+strconv.Itoa(i), "X-Api-Key", "real"))
				assert.Equal(t, status, w.Code, name)
			}
			for _, e := range events.Events() { // neither an error nor one that a failed limiter has
				assert.Equal(t, pipeline.SeverityWarning, e.Severity)
				assert.Contains(t, []string{ratelimit.EventRejected, ratelimit.EventShadowRejected}, e.Name)
				assert.ErrorContains(t, e.Err, "several values")
			}
		}
	}
	assert.Zero(t, perKey.Len(), "no limiter was asked")
}
