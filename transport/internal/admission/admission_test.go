package admission_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/status"
)

// What policies, quotas and Charge do is tested here, once for both transports. Their tests say that they use it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	policy   = admission.Policy[string]
	problems = validate.Problems
)

var transport = &admission.Transport[string]{
	Package: "test", ErrNotCharged: errors.New("not charged"), ErrPartialRefund: errors.New("partial"),
	Fields: admission.Fields{Policy: "policy", Limit: "limit", LegacyLimit: "l", LegacyRemaining: "r", LegacyReset: "t"},
}

func bucket(t *testing.T, tokens int) *limiter.TokenBucket {
	t.Helper()
	b := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{TokenLimit: tokens, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}))
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func slots(t *testing.T, permits int) *limiter.Concurrency {
	t.Helper()
	l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits}))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func free(l limiter.StatisticsProvider) int { return int(l.Statistics().AvailablePermits) }

// A script is a limiter with one answer. The zero script rejects everything.
type script struct {
	lease  limiter.Lease
	reason string
	err    error
}

func (s script) TryAcquire(context.Context, int) (limiter.Lease, error) {
	if s.reason != "" {
		return custom.Rejected(0, s.reason), nil
	}
	return s.lease, s.err
}

func (s script) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return s.TryAcquire(ctx, n)
}

// granting is a limiter that grants every lease.
type granting func() limiter.Lease

func (g granting) TryAcquire(context.Context, int) (limiter.Lease, error) { return g(), nil }
func (g granting) Acquire(context.Context, int) (limiter.Lease, error)    { return g(), nil }

// admitted returns a call that the policies have admitted. The test ends it.
func admitted(t *testing.T, policies ...*policy) *admission.Call[string] {
	t.Helper()
	c := new(admission.Call[string])
	c.Begin(t.Context(), transport.NewLimits(admission.Options{}), false)
	t.Cleanup(c.End)
	for _, p := range policies {
		_, _, ok := c.Admit(t.Context(), p, "user")
		require.True(t, ok)
	}
	return c
}

func TestKeys(t *testing.T) {
	assert.Equal(t, "a", admission.BoundedKey("a"))
	digest := admission.BoundedKey(strings.Repeat("a", 129))
	assert.Len(t, digest, len("sha256:")+64)
	assert.NotEqual(t, digest, admission.BoundedKey(strings.Repeat("a", 130)))
	assert.NotEqual(t, digest, admission.BoundedKey(digest), "a client cannot use the key of another by sending its digest")
	assert.Len(t, admission.BoundedKey(strings.Repeat("a", 128)), 128)
	for want, values := range map[string][]string{"": nil, "x": {"x"}, admission.AmbiguousKey: {"x", "x"}} {
		assert.Equal(t, want, admission.KeyOf(values))
	}
}

// A key function that is nil is found when the program starts, and not by the first request.
func TestKeys_OfNil(t *testing.T) {
	type key func(string) string
	assert.PanicsWithError(t, "test: f must not be nil", func() { admission.Subject[key]("test", nil) })
	assert.PanicsWithError(t, "test: keys[1] must not be nil", func() {
		admission.Composite("test", []key{func(string) string { return "" }, nil})
	})
}

// Different parts never make the same key.
func FuzzComposite(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("1:a", "", "", "1:a")
	f.Add(strings.Repeat("x", 100), strings.Repeat("y", 100), "z", "z")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		var parts [2]string
		key := admission.Composite("test", []func(int) string{func(int) string { return parts[0] }, func(int) string { return parts[1] }})
		parts = [2]string{a, b}
		one := key(0)
		parts = [2]string{c, d}
		other := key(0)
		if ambiguous := a == admission.AmbiguousKey || b == admission.AmbiguousKey; ambiguous {
			assert.Equal(t, admission.AmbiguousKey, one)
		} else if (one == other) != (a == c && b == d) {
			t.Errorf("(%q, %q) is %q, (%q, %q) is %q", a, b, one, c, d, other)
		}
		if len(one) > 128 {
			t.Errorf("a key of %d bytes", len(one))
		}
	})
}

func TestPerKey(t *testing.T) {
	_, err := admission.PerKey("test", nil, nil)
	require.EqualError(t, err, "test: factory must not be nil")
	factory := limiter.FactoryFor[string](limiter.TokenBucketOptions{TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour})
	for _, c := range []struct{ max, keys, granted int }{{0, 100_000 + 1, 100_000}, {10, 11, 10}} {
		l := weir.Must(admission.PerKey("test", factory, &limiter.PartitionedOptions{MaxPartitions: c.max}))
		granted := 0
		for i := range c.keys { // all are in use
			if weir.Must(l.TryAcquire(t.Context(), strconv.Itoa(i), 1)).Acquired() {
				granted++
			}
		}
		assert.Equal(t, c.granted, granted)
		require.NoError(t, l.Close())
	}
}

// Functions and limiters that the program has got wrong are found when the Limits are made.
func TestLimits_Prepare(t *testing.T) {
	var none *limiter.TokenBucket
	text := func(p policy) string {
		var own problems
		p.Name = "p"
		transport.NewLimits(admission.Options{}).Prepare(&own, p)
		if err := own.Err("test"); err != nil {
			return err.Error()
		}
		return ""
	}
	const ofNil = "test: Limit must not be made of nil"
	assert.Equal(t, "test: Limit must be made by Of, ByKey, ByRequest or ByPipeline", text(policy{}))
	for _, l := range []admission.Limit[string]{
		admission.Of[string](nil), admission.Of[string](none), admission.ByKey(nil, func(s string) string { return s }),
		admission.ByRequest[string](nil), admission.ByPipeline[string](nil),
	} {
		assert.Equal(t, ofNil, text(policy{Limit: l}))
	}
	good := admission.Of[string](bucket(t, 1))
	assert.Equal(t, "test: Headers must be NoHeaders, Legacy or Draft11, got Headers(9); Timeout must be at least 0, got -1ns; "+
		"Quota must be at least 0, got -1; Window must be at least 0, got -1ns", text(policy{Limit: good, Headers: 9, Timeout: -1, Quota: -1, Window: -1}))
	assert.Empty(t, text(policy{Limit: good, MaxWait: -1}))
}

// A goroutine that the handler has left behind holds nothing, also if its permit comes when the handler has returned.
func TestCall_AdmitAfterTheHandler(t *testing.T) {
	l := slots(t, 1)
	for _, p := range []*policy{{Limit: admission.Of[string](l)}, {Limit: admission.Of[string](l), FailOpen: true}} {
		var call admission.Call[string]
		call.Begin(t.Context(), transport.NewLimits(admission.Options{}), false)
		call.End()
		_, rejection, ok := call.Admit(t.Context(), p, "")
		assert.False(t, ok)
		assert.Equal(t, status.Gone, rejection.Cause)
		assert.Equal(t, 1, free(l))
	}
}

// What a limiter of the program has granted although it returns an error is given back.
func TestCall_AdmitGrantWithAnError(t *testing.T) {
	for i, p := range []policy{{}, {FailOpen: true}, {Shadow: true}, {MaxWait: time.Hour}} {
		refunded := 0
		p.Limit = admission.Of[string](script{lease: custom.GrantedRefundable(1, nil, func() { refunded++ }), err: errStore})
		decide(t.Context(), admission.Options{}, p)
		assert.Equal(t, 1, refunded, i)
	}
	synctest.Test(t, func(t *testing.T) {
		refunded := 0
		p := policy{MaxWait: time.Second, Limit: admission.ByRequest[string](hanging{custom.GrantedRefundable(1, nil, func() { refunded++ }), context.DeadlineExceeded})}
		decide(t.Context(), admission.Options{}, p)
		assert.Equal(t, 1, refunded, "when MaxWait is over")
	})
}

// GiveBackOf gives back what one policy has granted, all of it, also if a lease panics, and leaves the rest.
func TestCall_GiveBackOf(t *testing.T) {
	other, released := bucket(t, 10), 0
	kept := &policy{Name: "kept", Limit: admission.Of[string](other)}
	p := &policy{Name: "p", Limit: admission.Of[string](granting(func() limiter.Lease {
		return custom.Granted(1, func() {
			if released++; released == 1 {
				panic("release")
			}
		})
	}))}
	c := admitted(t, p, kept, p)
	assert.PanicsWithValue(t, "release", func() { c.GiveBackOf(p, false) })
	assert.Equal(t, 2, released)
	assert.Equal(t, 1, c.Held())
	c.GiveBackOf(kept, true)
	assert.Equal(t, 10, free(other))
	c.End()
	assert.Zero(t, c.Held())
}

// A call further out with the same Limits has asked the global policy, and no other has.
func TestCall_FirstPolicy(t *testing.T) {
	same, others := transport.NewLimits(admission.Options{}), transport.NewLimits(admission.Options{})
	var outer, between, inner, without admission.Call[string]
	outer.Begin(t.Context(), same, true)
	between.Begin(&outer, others, true)
	inner.Begin(&between, same, true)
	without.Begin(&between, same, false)
	assert.Equal(t, []int32{0, 0, 1, 0}, []int32{outer.First, between.First, inner.First, without.First})
}
