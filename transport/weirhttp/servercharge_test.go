package weirhttp

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// within runs f in a handler behind the policies.
func within(t *testing.T, l *Limits, f func(r *http.Request), route ...string) {
	t.Helper()
	ran := false
	w := get(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		f(r)
	}), route...))
	require.True(t, ran, "rejected: %d", w.Code)
}

func TestLeaseFrom(t *testing.T) {
	slots := concurrency(t, 2, 0)
	l := weir.Must(NewLimits(&LimitsOptions{
		Global:   Policy{Limit: Of(slots)},
		Policies: map[string]Policy{"a": {Limit: Of(yes()), Cost: func(*http.Request) int { return 7 }}, "shadow": {Limit: Of(no()), Shadow: true}},
	}))
	var kept context.Context
	within(t, l, func(r *http.Request) {
		kept = r.Context()
		assert.Same(t, r, RequestFrom(r.Context()))
		lease, ok := LeaseFrom(r.Context())
		assert.True(t, ok)
		assert.Equal(t, 7, lease.Permits())
		var policies []string
		for name, lease := range Leases(r.Context()) {
			policies = append(policies, name)
			if name == "global" {
				lease.Release() // earlier than the handler returns
				lease.Release()
			}
		}
		assert.Equal(t, []string{"a", "global"}, policies)
		assert.EqualValues(t, 2, slots.Statistics().AvailablePermits)
	}, "a", "shadow")
	assert.EqualValues(t, 2, slots.Statistics().AvailablePermits)
	assert.Contains(t, kept.(interface{ String() string }).String(), ".weirhttp")

	_, ok := LeaseFrom(kept)
	assert.False(t, ok, "the handler has returned")
	_, err := Charge(kept, 1, "a")
	assert.ErrorIs(t, err, ErrNotCharged)
	_, ok = LeaseFrom(t.Context())
	assert.False(t, ok)
	assert.Nil(t, RequestFrom(t.Context()))
	_, err = Charge(t.Context(), 1)
	assert.ErrorIs(t, err, ErrNotCharged)
}

func TestCharge(t *testing.T) {
	perUser := keyedBuckets(t, 100)
	key := Header("X-Api-Key")
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"requests": {Limit: Of(yes())},
		"tokens":   {Limit: ByKey(perUser, key), Metered: true, Cost: func(*http.Request) int { return 10 }},
	}}))
	left := func() int64 {
		s, err := perUser.Statistics("")
		require.NoError(t, err)
		return s.AvailablePermits
	}
	within(t, l, func(r *http.Request) {
		charged, err := Charge(r.Context(), 25)
		require.NoError(t, err)
		assert.Equal(t, 25, charged)
		assert.EqualValues(t, 65, left())

		charged, err = Charge(r.Context(), -25) // exactly what was taken in addition
		require.NoError(t, err)
		assert.Equal(t, -25, charged)
		assert.EqualValues(t, 90, left())

		charged, err = Charge(r.Context(), 500)
		require.NoError(t, err)
		assert.Equal(t, 500, charged)
		assert.EqualValues(t, 0, left(), "it owes 410")

		charged, err = Charge(r.Context(), -415)
		require.NoError(t, err)
		assert.Equal(t, -415, charged)
		assert.EqualValues(t, 5, left())

		charged, err = Charge(r.Context(), -1000)
		require.NoError(t, err)
		assert.Equal(t, -95, charged, "no more than was taken")
		assert.EqualValues(t, 100, left())

		charged, err = Charge(r.Context(), 0)
		require.NoError(t, err)
		assert.Zero(t, charged)
		_, err = Charge(r.Context(), 1, "unknown")
		assert.ErrorIs(t, err, ErrNotCharged)
	}, "requests", "tokens")
	assert.EqualValues(t, 100, left())
}

func TestCharge_PartialRefund(t *testing.T) {
	b, slots := bucket(t, 10), concurrency(t, 10, 0)
	four := func(*http.Request) int { return 4 }
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"spent": {Limit: Of(b), Metered: true, Cost: four},
		"lent":  {Limit: Of(slots), Cost: four},
	}}))
	within(t, l, func(r *http.Request) {
		charged, err := Charge(r.Context(), -1)
		require.NoError(t, err)
		assert.Equal(t, -1, charged)
		assert.EqualValues(t, 7, b.Statistics().AvailablePermits)
		_, err = Charge(r.Context(), -1, "lent")
		assert.ErrorIs(t, err, ErrPartialRefund)
		assert.EqualValues(t, 6, slots.Statistics().AvailablePermits)
	}, "spent", "lent")
}

func TestCharge_ConcurrencyLimit(t *testing.T) {
	slots := concurrency(t, 5, 0)
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(slots)}}}))
	within(t, l, func(r *http.Request) {
		charged, err := Charge(r.Context(), 3, "p")
		require.NoError(t, err)
		assert.Equal(t, 3, charged)
		assert.EqualValues(t, 1, slots.Statistics().AvailablePermits)
	}, "p")
	assert.EqualValues(t, 5, slots.Statistics().AvailablePermits)
}

// Handlers can call Charge from several goroutines, even after they have returned.
func TestCharge_AllPoliciesConcurrentSafe(t *testing.T) {
	spent, slots := bucket(t, 1000), concurrency(t, 1000, 0)
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{
		"spent": {Limit: Of(spent), Metered: true, Cost: func(*http.Request) int { return 10 }}, "lent": {Limit: Of(slots), Metered: true},
	}}))
	var wg sync.WaitGroup
	for range 50 {
		within(t, l, func(r *http.Request) {
			for i := range 4 {
				wg.Go(func() {
					for range 5 {
						_, _ = Charge(r.Context(), 3-2*i)
						for _, lease := range Leases(r.Context()) {
							_ = lease.Permits()
						}
					}
				})
			}
		}, "spent", "lent")
	}
	wg.Wait()
	assert.EqualValues(t, 1000, slots.Statistics().AvailablePermits)
}

// All calls of Charge for one request on several goroutines count.
func TestCharge_ConcurrentSafe(t *testing.T) {
	const calls = 50
	tokens := bucket(t, 1000)
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(tokens), Metered: true}}}))
	get(l.Handler(handler(func(_ http.ResponseWriter, r *http.Request) {
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				charged, err := Charge(r.Context(), 2)
				assert.NoError(t, err)
				assert.Equal(t, 2, charged)
			})
		}
		all.Wait()
		lease, _ := LeaseFrom(r.Context())
		assert.Equal(t, 1+2*calls, lease.Permits())
	}), "p"))
	assert.EqualValues(t, 1000-1-2*calls, tokens.Statistics().AvailablePermits)
}

// If a handler returns while one of its calls of Charge is running, no permit is lost.
func TestCharge_HandlerReturnsMeanwhile(t *testing.T) {
	o := &lender{hold: make(chan struct{}), inside: make(chan struct{})}
	l := weir.Must(NewLimits(&LimitsOptions{Policies: map[string]Policy{"p": {Limit: Of(remoteGrants{o}), Metered: true}}}))
	charged := make(chan struct{})
	get(l.Handler(handler(func(_ http.ResponseWriter, r *http.Request) {
		go func() {
			defer close(charged)
			_, err := Charge(r.Context(), 1)
			assert.NoError(t, err)
		}()
		<-o.inside
		time.AfterFunc(time.Millisecond, func() { close(o.hold) })
	}), "p"))
	<-charged
	assert.Equal(t, 1, o.comeOff)
}

// lender lends its permits, and counts the permits that come back.
type lender struct {
	mu      sync.Mutex
	hold    chan struct{} // Adjust waits for it
	inside  chan struct{}
	comeOff int
}

func (o *lender) Release(int, int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.comeOff++
}

func (o *lender) Refund(int, int64) {}

func (o *lender) Adjust(int, int64, int) (int64, bool) {
	close(o.inside)
	<-o.hold
	return 1, true
}

type remoteGrants struct{ *lender }

func (r remoteGrants) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	return custom.GrantedBy(r.lender, n, 0), nil
}

func (r remoteGrants) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return r.TryAcquire(ctx, n)
}
