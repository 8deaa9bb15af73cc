package weirhttp

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

func TestWriteRetryAfter(t *testing.T) {
	h := make(http.Header)
	writeRetryAfter(h, 0)
	assert.Empty(t, h)
	writeRetryAfter(h, 1500*time.Millisecond)
	assert.Equal(t, "2", h.Get("Retry-After"))
	writeRetryAfter(h, time.Second)
	assert.Equal(t, "2", h.Get("Retry-After"), "never earlier")
	h.Set("Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT")
	writeRetryAfter(h, time.Second)
	assert.Equal(t, "1", h.Get("Retry-After"))
}

func TestQuota_WriteDraft11(t *testing.T) {
	h := make(http.Header)
	quota{Policy: "burst", Permits: 100, Window: time.Minute, Remaining: 50, Reset: 30 * time.Second}.write(h, Draft11)
	quota{Policy: `a "day" \ über`, Permits: math.MaxInt64, Remaining: -1}.write(h, Draft11)
	assert.Equal(t, []string{`"burst";q=100;w=60`, `"a \"day\" \\ ?ber";q=999999999999999`}, h.Values("RateLimit-Policy"))
	assert.Equal(t, []string{`"burst";r=50;t=30`, `"a \"day\" \\ ?ber";r=0`}, h.Values("RateLimit"))
	assert.Empty(t, h.Get("Retry-After"), "no request was rejected")
}

func TestQuota_WriteWithRetryAfter(t *testing.T) {
	h := make(http.Header)
	writeRetryAfter(h, 2*time.Second)
	quota{Policy: "day", Permits: 5000, Remaining: 4000, Reset: time.Hour}.write(h, Draft11)
	assert.Equal(t, `"day";r=4000`, h.Get("RateLimit"))
	assert.Equal(t, "2", h.Get("Retry-After"), "the daily quota is not exhausted")
	quota{Policy: "burst", Permits: 10, Remaining: 0, Reset: 4500 * time.Millisecond}.write(h, Draft11)
	assert.Equal(t, `"burst";r=0;t=5`, h.Values("RateLimit")[1])
	assert.Equal(t, "5", h.Get("Retry-After"), "not earlier than t")
}

func TestQuota_WriteLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := make(http.Header)
		time.Sleep(time.Millisecond)
		quota{Policy: "day", Permits: 5000, Remaining: 4000, Reset: time.Hour}.write(h, Legacy)
		quota{Policy: "burst", Permits: 10, Remaining: 3, Reset: 4 * time.Second}.write(h, Legacy)
		quota{Policy: "week", Permits: 9000, Remaining: 8000, Reset: time.Hour}.write(h, Legacy)
		assert.Equal(t, "10", h.Get("X-RateLimit-Limit"))
		assert.Equal(t, "3", h.Get("X-RateLimit-Remaining"))
		assert.Equal(t, strconv.FormatInt(time.Now().Unix()+5, 10), h.Get("X-RateLimit-Reset"))
		quota{Policy: "now", Permits: 10}.write(h, Legacy)
		assert.Equal(t, "0", h.Get("X-RateLimit-Remaining"))
		assert.Empty(t, h.Get("X-RateLimit-Reset"), "not known")
		quota{Reset: math.MaxInt64}.write(http.Header{}, Legacy)
	})
}

func TestQuota_WriteNone(t *testing.T) {
	h := make(http.Header)
	quota{Policy: "burst", Permits: 10, Reset: time.Second}.write(h, NoHeaders)
	assert.Empty(t, h)
}

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

func TestQuota_WriteAllocations(t *testing.T) {
	h := make(http.Header)
	q := quota{Policy: "burst", Permits: 100, Window: time.Minute, Remaining: 50, Reset: 30 * time.Second}
	assert.Equal(t, 3.0, testing.AllocsPerRun(100, func() {
		clear(h)
		q.write(h, Draft11)
	}), "the text and two slices")
}

// Whatever the name of a policy is, the field is one string with parameters.
func FuzzQuota_PolicyName(f *testing.F) {
	for _, s := range []string{"burst", "", `"`, `\`, "a\r\nSet-Cookie: x", "ü", "\xff", ";q=1, "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		h := make(http.Header)
		quota{Policy: name, Permits: 7}.write(h, Draft11)
		value, ok := strings.CutSuffix(strings.TrimPrefix(h.Get("RateLimit"), `"`), `";r=0`)
		unescaped := strings.NewReplacer(`\\`, "", `\"`, "").Replace(value)
		if !ok || strings.ContainsAny(unescaped, `"\`) {
			t.Errorf("%q: %q", name, h.Get("RateLimit"))
		}
		for _, c := range []byte(value) {
			if c < ' ' || c > '~' {
				t.Errorf("%q: %q", name, h.Get("RateLimit"))
			}
		}
	})
}

// With nested handlers, a client that comes back in time for the inner policy must not be too early for the outer one.
func TestServer_RetryAfterIsNotEarlierThanTheQuota(t *testing.T) {
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		`one";t=9`: {Limiter: bucket(t, 1)}, "many": {Limiter: bucket(t, 5)}, "no": {Limiter: no()},
	}}))
	w := get(l.Handler(l.Handler(served, "no"), "many"))
	assert.Equal(t, "2", w.Result().Header.Get("Retry-After"))
	assert.Len(t, w.Result().Header["Ratelimit"], 1)
	assert.NotContains(t, w.Result().Header.Get("Ratelimit"), ";t=", "the policy is not exhausted")

	circuit := Through(weir.Must(pipeline.New("c", instead(nil, afterError{}))), nil)(served)
	w = get(l.Handler(circuit, `one";t=9`))
	assert.Equal(t, "2", w.Result().Header.Get("Retry-After"))
	assert.Empty(t, w.Result().Header["Ratelimit"], "it has cost nothing")
	w = get(l.Handler(l.Handler(served, "no"), `one";t=9`))
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, "3600", w.Result().Header.Get("Retry-After"))
	assert.Equal(t, []string{`"one\";t=9";r=0;t=3600`}, w.Result().Header["Ratelimit"])
}

type afterError struct{}

func (afterError) Error() string                     { return "open" }
func (afterError) Is(target error) bool              { return target == pipeline.ErrRejected }
func (afterError) RetryAfter() (time.Duration, bool) { return 1500 * time.Millisecond, true }

func TestLimitsOptions_Headers(t *testing.T) {
	one := bucket(t, 2)
	l := weir.Must(NewLimits(&LimitsOptions{Headers: Draft11, Policies: map[string]Policy{
		"shared":   {Limiter: one},
		"per-user": {Partitioned: keyedBuckets(t, 5), Quota: 5, Window: time.Hour, Key: Header("X-Api-Key")},
		"legacy":   {Limiter: one, Headers: Legacy},
		"capacity": {Limiter: concurrency(t, 1, 0)},
		"by request": {Requests: limiter.Translate(limiter.Partitioned[string](keyedBuckets(t, 5)), func(r *http.Request) string {
			return r.Host
		})},
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
