package weirhttp

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2,
		math.MaxInt64: 9223372037, 90 * time.Second: 90,
	} {
		assert.Equal(t, want, wholeSeconds(d), d)
	}
}

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
	quota{policy: "burst", permits: 100, window: time.Minute, remaining: 50, reset: 30 * time.Second}.write(h, Draft11)
	quota{policy: `a "day" \ über`, permits: math.MaxInt64, remaining: -1}.write(h, Draft11)
	assert.Equal(t, []string{`"burst";q=100;w=60`, `"a \"day\" \\ ?ber";q=999999999999999`}, h.Values("RateLimit-Policy"))
	assert.Equal(t, []string{`"burst";r=50;t=30`, `"a \"day\" \\ ?ber";r=0`}, h.Values("RateLimit"))
	assert.Empty(t, h.Get("Retry-After"), "no request was rejected")
}

func TestQuota_WriteWithRetryAfter(t *testing.T) {
	h := make(http.Header)
	writeRetryAfter(h, 2*time.Second)
	quota{policy: "day", permits: 5000, remaining: 4000, reset: time.Hour}.write(h, Draft11)
	assert.Equal(t, `"day";r=4000`, h.Get("RateLimit"))
	assert.Equal(t, "2", h.Get("Retry-After"), "the daily quota is not exhausted")
	quota{policy: "burst", permits: 10, remaining: 0, reset: 4500 * time.Millisecond}.write(h, Draft11)
	assert.Equal(t, `"burst";r=0;t=5`, h.Values("RateLimit")[1])
	assert.Equal(t, "5", h.Get("Retry-After"), "not earlier than t")
}

func TestQuota_WriteLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := make(http.Header)
		time.Sleep(time.Millisecond)
		quota{policy: "day", permits: 5000, remaining: 4000, reset: time.Hour}.write(h, Legacy)
		quota{policy: "burst", permits: 10, remaining: 3, reset: 4 * time.Second}.write(h, Legacy)
		quota{policy: "week", permits: 9000, remaining: 8000, reset: time.Hour}.write(h, Legacy)
		assert.Equal(t, "10", h.Get("X-RateLimit-Limit"))
		assert.Equal(t, "3", h.Get("X-RateLimit-Remaining"))
		assert.Equal(t, strconv.FormatInt(time.Now().Unix()+5, 10), h.Get("X-RateLimit-Reset"))
		quota{policy: "now", permits: 10}.write(h, Legacy)
		assert.Equal(t, "0", h.Get("X-RateLimit-Remaining"))
		assert.Empty(t, h.Get("X-RateLimit-Reset"), "not known")
		quota{reset: math.MaxInt64}.write(http.Header{}, Legacy)
	})
}

func TestQuota_WriteNone(t *testing.T) {
	h := make(http.Header)
	quota{policy: "burst", permits: 10, reset: time.Second}.write(h, NoHeaders)
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
	q := quota{policy: "burst", permits: 100, window: time.Minute, remaining: 50, reset: 30 * time.Second}
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
		quota{policy: name, permits: 7}.write(h, Draft11)
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

func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", " 7 ", "1.5", "99999999999999999999", "Wed, 21 Oct 2026 07:28:00 GMT", "Wednesday, 21-Oct-26 07:28:00 GMT", "soon"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, ok := parseRetryAfter(text, nil)
		if d < 0 || !ok && d != 0 {
			t.Errorf("%q: %v, %v", text, d, ok)
		}
		if n, err := strconv.ParseUint(text, 10, 63); err == nil && !strings.Contains(text, "_") && text[0] != '+' {
			want := forever
			if n <= uint64(forever/time.Second) {
				want = time.Duration(n) * time.Second
			}
			if !ok || d != want {
				t.Errorf("%q: %v, %v", text, d, ok)
			}
		}
	})
}

func TestParseRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for text, want := range map[string]time.Duration{
			"0": 0, "120": 2 * time.Minute, " 7\t": 7 * time.Second, "007": 7 * time.Second,
			"9223372036": 9223372036 * time.Second, "9223372037": forever, "99999999999999999999999999": forever,
			in(time.Minute): time.Minute, in(-time.Minute): 0, in(0): 0,
			time.Now().Add(time.Hour).UTC().Format(time.ANSIC): time.Hour,
		} {
			d, ok := parseRetryAfter(text, nil)
			assert.True(t, ok, text)
			assert.Equal(t, want, d, text)
		}
		for _, text := range []string{"", " ", "-1", "+1", "1.5", "1s", "1 2", "soon", "2026-10-21"} {
			_, ok := parseRetryAfter(text, nil)
			assert.False(t, ok, text)
		}
	})
}

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
