package admission_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/transport/internal/admission"
)

var names = &transport.Fields

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

// told returns what the policy tells the client about a request that its limiter has answered, in both forms.
func told(t *testing.T, p policy, retryAfter time.Duration) string {
	t.Helper()
	l := transport.NewLimits(admission.Options{Headers: admission.Draft11})
	p.Name = "p"
	p = l.Prepare(new(problems), p)
	var c admission.Call[string]
	c.Begin(t.Context(), l, false)
	defer c.End()
	key, rejection, ok := c.Admit(t.Context(), &p, "user")
	var h map[string][]string
	if ok {
		h = c.WriteGranted(nil, &p, "user")
	} else {
		h = l.WriteQuota(nil, &p, "user", key, rejection.Lease, retryAfter)
	}
	return strings.TrimPrefix(strings.Join(h["policy"], ""), `"p";`) + "|" + strings.TrimPrefix(strings.Join(h["limit"], ""), `"p";`)
}

// remote is a limiter on another machine: its statistics take a round trip, and its leases can know what remains.
type remote struct {
	script
	asked int
}

func (r *remote) Limits() rate.Limits {
	return limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Minute}.Limits()
}

func (r *remote) Statistics() limiter.Statistics {
	r.asked++
	return limiter.Statistics{AvailablePermits: 9}
}

// left is the owner of leases that know what remains.
type left int64

func (left) Release(int, int64)                   {}
func (left) Refund(int, int64)                    {}
func (l left) Remaining(int, int64) (int64, bool) { return int64(l), true }

func TestLimits_WriteQuota_RemainingOfTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		lease      limiter.Lease
		retryAfter time.Duration
		want       string
		asked      int
	}{
		"granted, and known":       {custom.GrantedBy(left(7), 1, 0), 0, "q=10;w=60|r=7;t=60", 0},
		"granted, and not known":   {custom.Granted(1, nil), 0, "q=10;w=60|r=9;t=60", 1},
		"rejected, and known":      {custom.RejectedKnowing(time.Second, "", 0), time.Second, "q=10;w=60|r=0;t=1", 0},
		"rejected, and not known":  {limiter.Lease{}, time.Second, "q=10;w=60|r=9;t=1", 1},
		"granted, and none remain": {custom.GrantedBy(left(-3), 1, 0), 0, "q=10;w=60|r=0;t=60", 0},
		"granted, and too many":    {custom.GrantedBy(left(99), 1, 0), 0, "q=10;w=60|r=10;t=60", 0},
	} {
		l := &remote{script: script{lease: c.lease}}
		assert.Equal(t, c.want, told(t, policy{Limit: admission.Of[string](l)}, c.retryAfter), name)
		assert.Equal(t, c.asked, l.asked, "%s: calls of Statistics", name)
	}
}

// Without a Quota of the policy, the fields tell the limits in force. The key is asked for once.
func TestLimits_WriteQuota(t *testing.T) {
	asked := 0
	key := func(string) string { asked++; return "k" }
	o := limiter.TokenBucketOptions{TokenLimit: 20, TokensPerPeriod: 10, ReplenishmentPeriod: time.Hour}
	keyed := func(f limiter.Factory[string]) *limiter.PartitionedLimiter[string, string] {
		l := weir.Must(admission.PerKey("test", f, nil))
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	buckets := keyed(limiter.FactoryFor[string](o))
	p := policy{Limit: admission.ByKey(buckets, key)}
	assert.Equal(t, "q=20;w=7200|r=19;t=3600", told(t, p, 0))
	assert.Equal(t, 1, asked)
	o.TokenLimit = 40
	require.NoError(t, buckets.Apply(func(_ string, l limiter.Limiter) error { return l.(*limiter.TokenBucket).Reconfigure(o) }))
	assert.Equal(t, "q=40;w=14400|r=38;t=3600", told(t, p, 0))
	p.Cost = func(string) int { return 21 }
	assert.Equal(t, "q=40;w=14400|r=17;t=10800", told(t, p, 0), "until all of it is back")
	p.Quota, p.Window, p.Cost = 7, time.Minute, nil
	assert.Equal(t, "q=7;w=60|r=7;t=60", told(t, p, 0), "what the program says")
	p.Window = 0
	assert.Equal(t, "q=7|r=7", told(t, p, 0))
	p.Shadow = true
	assert.Equal(t, "|", told(t, p, 0), "a limit that is not in force")
	p.Shadow = false
	p.Headers, p.Quota = admission.Legacy, 0
	assert.Equal(t, "|", told(t, p, 0))

	window := weir.Must(limiter.NewPartitionedByKey(key, limiter.FactoryFor[string](limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}), nil))
	byRequest := admission.ByRequest[string](window)
	asked = 0
	for want, l := range map[string]admission.Limit[string]{
		"q=10;w=3600|r=9;t=3600": byRequest,
		"q=30;w=3600|r=29;t=3600": admission.ByKey(keyed(limiter.FactoryFor[string](limiter.SlidingWindowOptions{
			PermitLimit: 30, Window: time.Hour, SegmentsPerWindow: 4,
		})), key),
		"q=3;w=10800|r=2;t=3600": admission.Of[string](bucket(t, 3)),
		"|":                      admission.Of[string](slots(t, 3)), // a concurrency limit has no quota
	} {
		assert.Equal(t, want, told(t, policy{Limit: l}, 0))
	}
	assert.Equal(t, 2, asked)
	require.NoError(t, window.Close())
	assert.Equal(t, "|", told(t, policy{Limit: byRequest, FailOpen: true}, 0), "the limiter is closed")
}

// A rejection says when to come back, whatever a handler further out has told the client of its own quota.
func TestLimits_WriteQuota_LegacyOfARejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := transport.NewLimits(admission.Options{Headers: admission.Legacy})
		p := l.Prepare(new(problems), policy{Limit: admission.Of[string](bucket(t, 5))})
		h := map[string][]string{"l": {"1"}, "r": {"0"}, "t": {"9999999999"}}
		l.WriteQuota(h, &p, "user", "", custom.Rejected(time.Second, ""), time.Second)
		assert.Equal(t, map[string][]string{"l": {"5"}, "r": {"5"}, "t": {strconv.FormatInt(time.Now().Unix()+1, 10)}}, h)
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
