package weirhttp

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

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
