package weirhttp

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

func TestHeaders_Text(t *testing.T) {
	for _, kind := range []Headers{NoHeaders, Legacy, Draft11} {
		text, err := kind.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, kind.String(), string(text))
		var again Headers
		require.NoError(t, again.UnmarshalText(text))
		assert.Equal(t, kind, again)
	}
	_, err := Headers(9).MarshalText()
	assert.ErrorContains(t, err, "Headers(9)")
	assert.ErrorContains(t, new(Headers).UnmarshalText([]byte("all")), `Headers must be one of none, legacy, draft-11, got "all"`)
}

// With nested handlers, the lines of the outer one stay, and Retry-After is that of the rejection.
func TestServer_QuotasOfNestedHandlers(t *testing.T) {
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		"one": {Limit: Of(bucket(t, 1))}, "many": {Limit: Of(bucket(t, 5))}, "no": {Limit: Of(no())},
	}}))
	w := get(l.Handler(l.Handler(served, "no"), "many"))
	assert.Equal(t, "2", w.Result().Header.Get("Retry-After"))
	assert.Equal(t, []string{`"many";r=4;t=3600`}, w.Result().Header["Ratelimit"])

	circuit := Through(weir.Must(pipeline.New("c", instead(nil, afterError{}))), nil)(served)
	w = get(l.Handler(circuit, "one"))
	assert.Equal(t, "2", w.Result().Header.Get("Retry-After"))
	assert.Empty(t, w.Result().Header["Ratelimit"], "it has cost nothing")
}

type afterError struct{}

func (afterError) Error() string                     { return "open" }
func (afterError) Is(target error) bool              { return target == pipeline.ErrRejected }
func (afterError) RetryAfter() (time.Duration, bool) { return 1500 * time.Millisecond, true }

func TestLimitsOptions_Headers(t *testing.T) {
	one := bucket(t, 2)
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		"shared":   {Limit: Of(one)},
		"per-user": {Limit: ByKey(keyedBuckets(t, 5), Header("X-Api-Key")), Quota: 5, Window: time.Hour},
		"legacy":   {Limit: Of(one), Headers: Legacy},
		"capacity": {Limit: Of(concurrency(t, 1, 0))},
		"by request": {Limit: ByRequest(limiter.Translate(limiter.Partitioned[string](keyedBuckets(t, 5)), func(r *http.Request) string {
			return r.Host
		}))},
	}}))
	w := get(l.Handler(served, "per-user", "shared", "capacity", "by request"))
	assert.Equal(t, []string{`"per-user";q=5;w=3600`, `"shared";q=2;w=3600`}, w.Result().Header["Ratelimit-Policy"])
	assert.Equal(t, []string{`"per-user";r=4;t=3600`, `"shared";r=1;t=3600`}, w.Result().Header["Ratelimit"])

	get(l.Handler(served, "shared"))
	w = get(l.Handler(served, "shared"))
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, []string{`"shared";r=0;t=3600`}, w.Result().Header["Ratelimit"])
	assert.Equal(t, "3600", w.Result().Header.Get("Retry-After"))

	w = get(l.Handler(served, "legacy"))
	assert.Equal(t, "2", w.Result().Header.Get("X-RateLimit-Limit"))
	assert.Equal(t, "0", w.Result().Header.Get("X-RateLimit-Remaining"))
}
