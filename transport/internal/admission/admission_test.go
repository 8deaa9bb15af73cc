package admission_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/status"
)

// The tests of weirhttp and weirgrpc cover this package. The tests here are for what each of them relies on.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var transport = &admission.Transport[string]{
	Package: "test", ErrNotCharged: errors.New("not charged"), ErrPartialRefund: errors.New("partial"),
}

func bucket(t *testing.T, tokens int) *limiter.TokenBucket {
	t.Helper()
	b := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: tokens, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour,
	}))
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestCall_ChargeAndEnd(t *testing.T) {
	b := bucket(t, 10)
	p := &admission.Policy[string]{Name: "p", Limit: admission.Of[string](b), Metered: true, Cost: func(r string) int { return len(r) }}
	var c admission.Call[string]
	c.Begin(t.Context(), transport.NewLimits(admission.Options{}))
	_, _, ok := c.Admit(t.Context(), p, "four")
	require.True(t, ok)
	charged, err := transport.Charge(&c, 3)
	require.NoError(t, err)
	assert.Equal(t, 3, charged)
	assert.Equal(t, int64(3), b.Statistics().AvailablePermits)
	c.GiveBackFrom(0, true)
	assert.Equal(t, int64(10), b.Statistics().AvailablePermits, "as if it had never been taken")
	c.End()
	_, err = transport.Charge(&c, 1)
	assert.Equal(t, transport.ErrNotCharged, err)
}

func TestCall_AdmitNamesTheCause(t *testing.T) {
	closed := bucket(t, 1)
	require.NoError(t, closed.Close())
	full := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	held, err := full.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	defer held.Release()
	empty := bucket(t, 1)
	_, err = empty.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx   context.Context
		l     limiter.Limiter
		cost  int
		cause status.Cause
		never bool
	}{
		{t.Context(), empty, 1, status.OverQuota, false},
		{t.Context(), full, 1, status.OverCapacity, false},
		{t.Context(), bucket(t, 1), 2, status.OverQuota, true},
		{t.Context(), bucket(t, 1), -1, status.Failed, false},
		{t.Context(), closed, 1, status.Undecided, false},
		{gone, bucket(t, 1), 1, status.Gone, false},
	} {
		p := &admission.Policy[string]{Name: "p", Limit: admission.Of[string](c.l), Cost: func(string) int { return c.cost }}
		var call admission.Call[string]
		call.Begin(c.ctx, transport.NewLimits(admission.Options{}))
		_, refusal, ok := call.Admit(c.ctx, p, "")
		assert.False(t, ok)
		assert.Equal(t, c.cause, refusal.Cause)
		assert.Equal(t, c.never, refusal.Never)
		call.End()
	}
}

func TestBoundedKey(t *testing.T) {
	assert.Equal(t, "a", admission.BoundedKey("a"))
	digest := admission.BoundedKey(strings.Repeat("a", 129))
	assert.Len(t, digest, len("sha256:")+64)
	assert.NotEqual(t, digest, admission.BoundedKey(digest), "a client cannot use the key of another by sending its digest")
}

// A goroutine that the handler has left behind holds nothing, also if its permit comes when the handler has returned.
func TestAdmit_AfterTheHandler(t *testing.T) {
	transport := &admission.Transport[string]{Package: "test"}
	slots := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1}))
	t.Cleanup(func() { _ = slots.Close() })
	for _, p := range []*admission.Policy[string]{{Limit: admission.Of[string](slots)}, {Limit: admission.Of[string](slots), FailOpen: true}} {
		var call admission.Call[string]
		call.Begin(t.Context(), transport.NewLimits(admission.Options{}))
		call.End()
		_, refusal, ok := call.Admit(t.Context(), p, "")
		assert.False(t, ok)
		assert.Equal(t, status.Gone, refusal.Cause)
		assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
	}
}

// GiveBackOf gives back what one policy has granted, all of it, also if a lease panics, and leaves the rest.
func TestCall_GiveBackOf(t *testing.T) {
	other, released := bucket(t, 10), 0
	kept := &admission.Policy[string]{Name: "kept", Limit: admission.Of[string](other)}
	p := &admission.Policy[string]{Name: "p", Limit: admission.Of[string](granting(func() limiter.Lease {
		return custom.Granted(1, func() {
			if released++; released == 1 {
				panic("release")
			}
		})
	}))}
	var c admission.Call[string]
	c.Begin(t.Context(), transport.NewLimits(admission.Options{}))
	for _, policy := range []*admission.Policy[string]{p, kept, p} {
		_, _, ok := c.Admit(t.Context(), policy, "key")
		require.True(t, ok)
	}
	assert.PanicsWithValue(t, "release", func() { c.GiveBackOf(p, false) })
	assert.Equal(t, 2, released)
	assert.Equal(t, 1, c.Held())
	c.GiveBackOf(kept, true)
	assert.Equal(t, int64(10), other.Statistics().AvailablePermits)
	c.End()
	assert.Zero(t, c.Held())
}

// granting is a limiter that grants every lease.
type granting func() limiter.Lease

func (g granting) TryAcquire(context.Context, int) (limiter.Lease, error) { return g(), nil }
func (g granting) Acquire(context.Context, int) (limiter.Lease, error)    { return g(), nil }
