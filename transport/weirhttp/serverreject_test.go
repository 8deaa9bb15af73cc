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
		Policies: map[string]Policy{"p": {Limit: Of(no())}},
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
}

// A policy can be made by a method of the program.
func TestPolicy_StatusByTheCause(t *testing.T) {
	full := concurrency(t, 1, 0)
	_, _ = full.TryAcquire(t.Context(), 1)
	spent := bucket(t, 1)
	_, _ = spent.TryAcquire(t.Context(), 1)
	both, err := limiter.Chain(bucket(t, 5), full)
	require.NoError(t, err)
	perUser, err := PerKey(limiter.FactoryFor[string](limiter.ConcurrencyOptions{PermitLimit: 1}), &limiter.PartitionedOptions{MaxPartitions: 1})
	require.NoError(t, err)
	defer perUser.Close()
	_, _ = perUser.TryAcquire(t.Context(), "alice", 1)
	closed := bucket(t, 1)
	_ = closed.Close()
	user := func(name string) Key { return func(*http.Request) string { return name } }

	for _, c := range []struct {
		name   string
		policy Policy
		want   int
	}{
		{"a quota", Policy{Limit: Of(spent)}, 429},
		{"capacity", Policy{Limit: Of(full)}, 503},
		{"capacity in a chain", Policy{Limit: Of(both)}, 503},
		{"a caller's share of the capacity", Policy{Limit: ByKey(perUser, user("alice"))}, 429},
		{"no room for another key", Policy{Limit: ByKey(perUser, user("bob"))}, 503},
		{"what the policy says", Policy{Limit: Of(full), Status: 420}, 420},
		{"closed", Policy{Limit: Of(closed)}, 503},
		{"failed", Policy{Limit: Of(&always{err: errStore})}, 503},
		{"failed, but open", Policy{Limit: Of(&always{err: errStore}), FailOpen: true}, 200},
		{"more than it can ever grant", Policy{Limit: ByKey(perUser, user("alice")), Cost: func(*http.Request) int { return 2 }, FailOpen: true}, 429},
		{"more than all clients can ever get", Policy{Limit: Of(full), Cost: func(*http.Request) int { return 2 }, FailOpen: true}, 429},
		{"less than nothing", Policy{Limit: Of(full), Cost: func(*http.Request) int { return -1 }}, 500},
		{"shadow", Policy{Limit: Of(full), Shadow: true}, 200},
		{"shadow, failed", Policy{Limit: Of(closed), Shadow: true}, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": c.policy}}))
			assert.Equal(t, c.want, get(l.Handler(served, "p")).Code)
		})
	}
}
