package admission_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/transport/internal/admission"
)

// metered returns a policy of that cost that Charge corrects without a name.
func metered(name string, l limiter.Limiter, cost int) *policy {
	return &policy{Name: name, Limit: admission.Of[string](l), Metered: true, Cost: func(string) int { return cost }}
}

func TestCharge(t *testing.T) {
	b, other := bucket(t, 100), bucket(t, 100)
	requests := &policy{Name: "requests", Limit: admission.Of[string](other)}
	c := admitted(t, requests, metered("tokens", b, 10))
	for _, step := range []struct{ n, charged, left int }{
		{25, 25, 65},
		{-25, -25, 90}, // exactly what was taken in addition
		{500, 500, 0},  // it owes 410
		{-415, -415, 5},
		{-1000, -95, 100}, // no more than was taken
		{0, 0, 100},
		{7, 7, 93},
		{math.MinInt, -7, 100},
	} {
		charged, err := transport.Charge(c, step.n)
		require.NoError(t, err)
		assert.Equal(t, step.charged, charged)
		assert.Equal(t, step.left, free(b), step.n)
	}
	assert.Equal(t, 99, free(other), "it is not metered")
	charged, err := transport.Charge(c, 3, "requests")
	require.NoError(t, err)
	assert.Equal(t, 3, charged)
	assert.Equal(t, 96, free(other))
	_, err = transport.Charge(c, 1, "unknown")
	require.ErrorIs(t, err, transport.ErrNotCharged)
	_, err = transport.Charge(t.Context(), 1)
	require.ErrorIs(t, err, transport.ErrNotCharged)
	c.Refund()
	assert.Equal(t, 96, free(other), "what was charged for work that is done stays spent")
	c.End()
	_, err = transport.Charge(c, 1, "requests")
	require.ErrorIs(t, err, transport.ErrNotCharged, "the handler has returned")
}

// A limiter that lends its permits grants what it has, and takes back whole leases only. If policies are corrected by
// different numbers, the number nearest to 0 counts.
func TestCharge_LentPermits(t *testing.T) {
	spent, lent := bucket(t, 100), slots(t, 10)
	c := admitted(t, metered("spent", spent, 4), metered("lent", lent, 4))
	charged, err := transport.Charge(c, 9)
	require.NoError(t, err)
	assert.Equal(t, 6, charged)
	assert.Equal(t, 0, free(lent), "all that there were")
	assert.Equal(t, 87, free(spent))
	_, err = transport.Charge(c, -1, "lent")
	require.ErrorIs(t, err, transport.ErrPartialRefund, "the last of the leases has two permits")
	_, err = transport.Charge(c, math.MinInt, "lent")
	require.NoError(t, err)
	assert.Equal(t, 10, free(lent))

	c = admitted(t, metered("lent", lent, 4))
	charged, err = transport.Charge(c, -3)
	require.ErrorIs(t, err, transport.ErrPartialRefund)
	assert.Zero(t, charged)
	assert.Equal(t, 6, free(lent))
	_, _ = transport.Charge(c, 5)
	c.End()
	assert.Equal(t, 10, free(lent))
}

// What a handler has charged for its work stays spent if a pipeline then sheds the request, and what it has given back does not come
// back twice.
func TestCharge_ThenShed(t *testing.T) {
	for n, left := range map[int]int{5: 85, 0: 90, -4: 94, -10: 100} {
		b, lent := bucket(t, 100), slots(t, 100)
		c := admitted(t, metered("spent", b, 10), metered("lent", lent, 1), metered("adjusted by no one", asking(func(n int) (limiter.Lease, error) {
			return custom.GrantedRefundable(n, nil, func() { assert.Fail(t, "refunded") }), nil
		}), 20))
		_, _ = transport.Charge(c, n)
		c.MarkUnused()
		c.End()
		assert.Equal(t, left, free(b), n)
		assert.Equal(t, 100, free(lent), n)
	}
}

// asking is a limiter that is a function.
type asking func(n int) (limiter.Lease, error)

func (f asking) TryAcquire(_ context.Context, n int) (limiter.Lease, error) { return f(n) }
func (f asking) Acquire(_ context.Context, n int) (limiter.Lease, error)    { return f(n) }

// An error of the limiter ends a correction. What it has granted together with the error is given back.
func TestCharge_LimiterThatFails(t *testing.T) {
	asked, refunded := 0, 0
	c := admitted(t, metered("p", asking(func(n int) (limiter.Lease, error) {
		switch asked++; asked {
		case 2: // more than it can ever grant
			return limiter.Lease{}, limiter.ErrPermitCount
		case 4:
			return custom.GrantedRefundable(n, nil, func() { refunded++ }), errStore
		default:
			return custom.Granted(n, nil), nil
		}
	}), 1))
	charged, err := transport.Charge(c, 8)
	require.ErrorIs(t, err, errStore)
	assert.Equal(t, 4, charged)
	assert.Equal(t, 1, refunded)
}

// Calls of Charge for one request on several goroutines count, and lose nothing, also if the handler returns meanwhile.
func TestCharge_ConcurrentSafe(t *testing.T) {
	const calls = 50
	b := bucket(t, 1000)
	c := admitted(t, metered("p", b, 1))
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			charged, err := transport.Charge(c, 2)
			assert.NoError(t, err)
			assert.Equal(t, 2, charged)
		})
	}
	all.Wait()
	lease, _ := transport.LeaseFrom(c)
	assert.Equal(t, 1+2*calls, lease.Permits())
	assert.Equal(t, 1000-1-2*calls, free(b))

	spent, lent := bucket(t, 1000), slots(t, 1000)
	for range 50 {
		c := admitted(t, metered("spent", spent, 10), metered("lent", lent, 1))
		for i := range 4 {
			all.Go(func() {
				for range 5 {
					_, _ = transport.Charge(c, 3-2*i)
					for _, lease := range transport.Leases(c) {
						_ = lease.Permits()
					}
				}
			})
		}
		c.End()
	}
	all.Wait()
	assert.Equal(t, 1000, free(lent))
}

// End waits for a correction that is running.
func TestCharge_HandlerReturnsMeanwhile(t *testing.T) {
	l := &adjusting{hold: make(chan struct{}), inside: make(chan struct{})}
	c := admitted(t, metered("p", granting(func() limiter.Lease { return custom.GrantedBy(l, 1, 0) }), 1))
	var charging sync.WaitGroup
	charging.Go(func() {
		_, err := transport.Charge(c, 1)
		assert.NoError(t, err)
	})
	<-l.inside
	time.AfterFunc(time.Millisecond, func() { close(l.hold) })
	c.End()
	charging.Wait()
	assert.Equal(t, []int{2}, l.released)
}

// adjusting is the owner of leases whose Adjust waits.
type adjusting struct {
	hold, inside chan struct{}
	released     []int
}

func (l *adjusting) Release(n int, _ int64) { l.released = append(l.released, n) }
func (l *adjusting) Refund(int, int64)      {}

func (l *adjusting) Adjust(int, int64, int) (int64, bool) {
	close(l.inside)
	<-l.hold
	return 1, true
}

// The leases of a call come before the leases of calls further out, the last one first. What Charge took is left out.
func TestLeases(t *testing.T) {
	lent := slots(t, 10)
	outer := admitted(t, metered("global", lent, 1))
	var c admission.Call[string]
	c.Begin(outer, transport.NewLimits(admission.Options{}), false)
	defer c.End()
	shadow := metered("shadow", script{}, 1)
	shadow.Shadow = true
	for _, p := range []*policy{metered("first", lent, 2), shadow, metered("last", lent, 3)} {
		_, _, ok := c.Admit(t.Context(), p, "user")
		require.True(t, ok)
	}
	_, _ = transport.Charge(&c, 1, "last")
	var names []string
	for name, lease := range transport.Leases(&c) {
		if names = append(names, name); name == "first" {
			lease.Release() // earlier than the handler returns
			lease.Release()
		}
	}
	assert.Equal(t, []string{"last", "first", "global"}, names)
	assert.Equal(t, 10-1-3-1, free(lent))
	lease, ok := transport.LeaseFrom(&c)
	assert.True(t, ok)
	assert.Equal(t, 3, lease.Permits())
	c.End()
	outer.End()
	_, ok = transport.LeaseFrom(&c)
	assert.False(t, ok)
	_, ok = transport.LeaseFrom(context.Background())
	assert.False(t, ok)
	assert.Equal(t, 10, free(lent))
}
