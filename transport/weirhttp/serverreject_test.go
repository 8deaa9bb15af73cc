package weirhttp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/weirtest"
)

func TestBody(t *testing.T) {
	for _, c := range []struct {
		name        string
		body        Body
		rejection   Rejection
		status      int
		contentType string
		want        string
	}{
		{
			"plain", PlainText, Rejection{Policy: "burst", Status: 429}, 429,
			"text/plain; charset=utf-8", "Too Many Requests\n",
		},
		{"plain, no status", PlainText, Rejection{}, 429, "text/plain; charset=utf-8", "Too Many Requests\n"},
		{"plain, status of one's own", PlainText, Rejection{Status: 599}, 599, "text/plain; charset=utf-8", "status 599\n"},
		{
			"quota", ProblemJSON, Rejection{Policy: `the "burst"`, Status: 429, RetryAfter: 1200 * time.Millisecond}, 429,
			"application/problem+json",
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The quota of requests is exceeded.",` +
				`"status":429,"detail":"Try again in 2 s.","violated-policies":["the \"burst\""]}` + "\n",
		},
		{
			"capacity", ProblemJSON, Rejection{Policy: "workers", Status: 503}, 503, "application/problem+json",
			`{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
				`"title":"The capacity is reduced for the time being.","status":503,"violated-policies":["workers"]}` + "\n",
		},
		{
			"other", ProblemJSON, Rejection{Policy: "workers", Status: 403}, 403, "application/problem+json",
			`{"type":"about:blank","title":"Forbidden","status":403}` + "\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			w.Header().Set("Content-Encoding", "gzip")
			c.body(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), c.rejection)
			assert.Equal(t, c.status, w.Code)
			assert.Equal(t, c.contentType, w.Header().Get("Content-Type"))
			assert.Equal(t, strconv.Itoa(len(c.want)), w.Header().Get("Content-Length"))
			assert.Empty(t, w.Header().Get("Content-Encoding"))
			assert.Equal(t, c.want, w.Body.String())
			if c.contentType == "application/problem+json" {
				assert.True(t, json.Valid(w.Body.Bytes()))
			}
		})
	}
}

func TestLimitsOptions_OnRejected(t *testing.T) {
	var got Rejection
	l := weir.Must(NewLimits(&LimitsOptions{
		Policies: map[string]Policy{"p": {Limit: Of(no())}, "own status": {Limit: Of(no()), Status: StatusClientClosedRequest}},
		OnRejected: func(w http.ResponseWriter, r *http.Request, rejection Rejection) {
			got = rejection
			assert.Equal(t, "2", w.Header().Get("Retry-After"), "set already, and rounded up")
			assert.NotNil(t, r)
		},
	}))
	w := get(l.Handler(served, "p"))
	assert.Equal(t, 429, w.Code, "the body answers where OnRejected does not")
	assert.Equal(t, "Too Many Requests\n", w.Body.String())
	assert.Equal(t, "p", got.Policy)
	assert.Equal(t, 1500*time.Millisecond, got.RetryAfter)
	assert.False(t, got.Lease.Acquired())
	assert.NoError(t, got.Err)
	w = get(l.Handler(served, "own status"))
	assert.Equal(t, "own status", got.Policy)
	assert.Equal(t, "status 499\n", w.Body.String(), "the client is there")
}

// What admission decides by the options of a policy is answered with the status of its cause, or with the policy's own.
func TestPolicy_Status(t *testing.T) {
	full, down := Of(concurrencyInUse(t)), Of(fails())
	costs := func(n int) func(*http.Request) int { return func(*http.Request) int { return n } }
	twice := ByKey(keyedBuckets(t, 1), func(*http.Request) string { return AmbiguousKey })
	for name, c := range map[string]struct {
		policy Policy
		want   int
	}{
		"a quota":         {Policy{Limit: Of(no())}, 429},
		"capacity":        {Policy{Limit: full, MaxWait: -1}, 503},
		"what it says":    {Policy{Limit: full, Status: 420}, 420},
		"two keys":        {Policy{Limit: twice, Status: 420}, 400},
		"away":            {Policy{Limit: Of(follows(weirtest.Reject(0, limiter.ReasonUnavailable))), Status: 420}, 503},
		"failed":          {Policy{Limit: down, Status: 420}, 503},
		"failed, open":    {Policy{Limit: down, FailOpen: true}, 200},
		"too much":        {Policy{Limit: full, Cost: costs(2)}, 429},
		"a negative cost": {Policy{Limit: full, Cost: costs(-1)}, 500},
		"shadow":          {Policy{Limit: full, Shadow: true}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			heard := new(weirtest.Recorder)
			l := weir.Must(NewLimits(&LimitsOptions{Name: "shop", Policies: map[string]Policy{"p": c.policy}, Listener: heard}))
			assert.Equal(t, c.want, get(l.Handler(served, "p")).Code)
			require.Len(t, heard.Events(), 1)
			assert.Equal(t, pipeline.Source{Pipeline: "shop", Strategy: "p"}, heard.Events()[0].Source)
		})
	}
}
