package admission_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weir-go/weir/transport/internal/admission"
)

var names = admission.Fields{Policy: "policy", Limit: "limit", LegacyLimit: "l", LegacyRemaining: "r", LegacyReset: "t"}

func TestFields_AddDraft11(t *testing.T) {
	h := map[string][]string{}
	names.AddDraft11(h, admission.Quota{Policy: "burst", Permits: 100, Window: time.Minute, Remaining: 50, Reset: 29500 * time.Millisecond})
	names.AddDraft11(h, admission.Quota{Policy: `a "day" \ über`, Permits: math.MaxInt64})
	assert.Equal(t, []string{`"burst";q=100;w=60`, `"a \"day\" \\ ?ber";q=999999999999999`}, h["policy"])
	assert.Equal(t, []string{`"burst";r=50;t=30`, `"a \"day\" \\ ?ber";r=0`}, h["limit"])
	q := admission.Quota{Policy: "burst", Permits: 100, Window: time.Minute, Remaining: 50, Reset: 30 * time.Second}
	assert.Equal(t, 3.0, testing.AllocsPerRun(100, func() {
		clear(h)
		names.AddDraft11(h, q)
	}), "the text and two slices")
	names.Remove(h)
	assert.Empty(t, h)
}

func TestFields_SetLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := map[string][]string{}
		time.Sleep(time.Millisecond)
		names.SetLegacy(h, admission.Quota{Policy: "day", Permits: 5000, Remaining: 4000, Reset: time.Hour})
		names.SetLegacy(h, admission.Quota{Policy: "burst", Permits: 10, Remaining: 3, Reset: 4 * time.Second})
		names.SetLegacy(h, admission.Quota{Policy: "week", Permits: 9000, Remaining: 8000, Reset: time.Hour})
		assert.Equal(t, map[string][]string{"l": {"10"}, "r": {"3"}, "t": {strconv.FormatInt(time.Now().Unix()+5, 10)}}, h)
		names.SetLegacy(h, admission.Quota{Policy: "now", Permits: 10})
		assert.Equal(t, map[string][]string{"l": {"10"}, "r": {"0"}}, h, "the reset is not known")
		names.SetLegacy(map[string][]string{}, admission.Quota{Reset: math.MaxInt64})
	})
}

// Whatever the name of a policy is, the field is one string with parameters.
func FuzzFields_PolicyName(f *testing.F) {
	for _, s := range []string{"burst", "", `"`, `\`, "a\r\nSet-Cookie: x", "ü", "\xff", ";q=1, "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		h := map[string][]string{}
		names.AddDraft11(h, admission.Quota{Policy: name, Permits: 7})
		value, ok := strings.CutSuffix(strings.TrimPrefix(h["limit"][0], `"`), `";r=0`)
		unescaped := strings.NewReplacer(`\\`, "", `\"`, "").Replace(value)
		if !ok || strings.ContainsAny(unescaped, `"\`) {
			t.Errorf("%q: %q", name, h["limit"])
		}
		for _, c := range []byte(value) {
			if c < ' ' || c > '~' {
				t.Errorf("%q: %q", name, h["limit"])
			}
		}
	})
}
