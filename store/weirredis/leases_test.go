package weirredis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/testserver"
)

func slots(permits int64) *backend.Definition {
	return &backend.Definition{Name: "slots", Schedule: rate.Schedule{Kind: rate.Concurrency, Permits: permits}, Version: 5}
}

func lease(d *backend.Definition, id string, permits int64, ttl time.Duration) *backend.LeaseRequest {
	return &backend.LeaseRequest{Definition: d, Key: "k", ID: id, Permits: permits, TTL: ttl.Microseconds()}
}

// steeredLeases returns a Backend whose time is set to a moment.
func steeredLeases(t *testing.T) (*steered, func(time.Duration)) {
	t.Helper()
	b := newSteered(t, connect(t, testserver.Redis(t).URL), freshPrefix())
	now := int64(4_102_444_800_000_000) // in 2100, so that nothing is forgotten early
	move := func(by time.Duration) {
		now += by.Microseconds()
		b.setTime(t, now)
	}
	move(0)
	return b, move
}

func (s *steered) hold(t *testing.T, requests ...*backend.LeaseRequest) {
	t.Helper()
	require.NoError(t, s.Acquire(t.Context(), requests))
	for _, h := range requests {
		require.Equal(t, backend.Decided, h.Outcome)
	}
}

func TestLease_EndsAtItsMoment(t *testing.T) {
	b, move := steeredLeases(t)
	d := slots(1)
	b.hold(t, lease(d, "a", 1, 10*time.Second))
	move(10*time.Second - time.Microsecond)
	h := lease(d, "b", 1, 10*time.Second)
	b.hold(t, h)
	require.False(t, h.OK)
	require.EqualValues(t, 1, h.NextExpiry)
	move(time.Microsecond)
	b.hold(t, h)
	require.True(t, h.OK)
}

func TestAcquire_FencesGrow(t *testing.T) {
	b, move := steeredLeases(t)
	d := slots(1)
	last := int64(0)
	for i, step := range []time.Duration{0, 0, time.Second, -time.Minute, 0, time.Hour} {
		move(step)
		h := lease(d, fmt.Sprint(i), 1, time.Second)
		b.hold(t, h)
		require.True(t, h.OK)
		require.Greater(t, h.Fence, last, "after a step of %v", step)
		last = h.Fence
		require.NoError(t, b.Release(t.Context(), []*backend.LeaseRequest{h}))
	}
	require.NoError(t, b.client.Del(t.Context(), b.names.leases(d.Name, "k")).Err())
	move(time.Second)
	h := lease(d, "x", 1, time.Second)
	b.hold(t, h)
	require.Greater(t, h.Fence, last, "the server has forgotten the key")
}

func TestLease_ClockStepsBack(t *testing.T) {
	b, move := steeredLeases(t)
	d := slots(1)
	b.hold(t, lease(d, "a", 1, 10*time.Second))
	move(-time.Hour)
	h := lease(d, "b", 1, time.Minute)
	b.hold(t, h)
	require.False(t, h.OK, "the lease is not over")
	require.EqualValues(t, 10_000_000, h.NextExpiry, "it lasts its TTL from when the step was noticed")
	move(5 * time.Second)
	b.hold(t, h)
	require.EqualValues(t, 5_000_000, h.NextExpiry)
	move(5 * time.Second)
	b.hold(t, h)
	require.True(t, h.OK)
}

func TestLease_Many(t *testing.T) {
	b, move := steeredLeases(t)
	const n = 1000
	d := slots(n)
	requests := make([]*backend.LeaseRequest, n+1)
	for i := range requests {
		requests[i] = lease(d, fmt.Sprint(i), 1, time.Minute)
	}
	b.hold(t, requests...)
	for i, h := range requests {
		require.Equal(t, i < n, h.OK, i)
	}
	move(time.Second)
	require.NoError(t, b.Renew(t.Context(), requests[1:n]))
	b.hold(t, requests[n])
	require.InDelta(t, 59_500_000, requests[n].NextExpiry, 500_000)
	require.NoError(t, b.Release(t.Context(), requests[n/2:n]))
	b.hold(t, requests[n])
	require.EqualValues(t, n/2+1, requests[n].InUse)
	move(time.Hour)
	b.hold(t, requests[:1]...)
	require.EqualValues(t, 1, requests[0].InUse, "all have ended")
	require.EqualValues(t, 2, b.client.HLen(t.Context(), b.names.leases(d.Name, "k")).Val(), "and are gone")
}

func TestLease_Deleted(t *testing.T) {
	b, client := shared(t)
	d := slots(5)
	h := lease(d, "a", 1, time.Minute)
	before := time.Now()
	require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{h}))
	key := b.names.leases(d.Name, "k")
	expires := time.UnixMilli(client.PExpireTime(t.Context(), key).Val().Milliseconds())
	require.WithinDuration(t, before.Add(time.Minute+time.Hour), expires, 5*time.Second)
	h.TTL = (3 * time.Hour).Microseconds()
	require.NoError(t, b.Renew(t.Context(), []*backend.LeaseRequest{h}))
	expires = time.UnixMilli(client.PExpireTime(t.Context(), key).Val().Milliseconds())
	require.WithinDuration(t, before.Add(4*time.Hour), expires, 5*time.Second)

	// Turned away with nothing held: nothing is kept.
	big := &backend.LeaseRequest{Definition: d, Key: "other", ID: "a", Permits: 6, TTL: 1, Waiting: true}
	require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{big}))
	require.False(t, big.OK)
	require.Zero(t, client.Exists(t.Context(), b.names.leases(d.Name, "other")).Val())
}

// A lease that cannot be asked about fails by itself.
func TestLease_Invalid(t *testing.T) {
	b, _ := shared(t)
	d := slots(5)
	ctx := t.Context()
	fails := func(name string, ask func(context.Context, []*backend.LeaseRequest) error, wrong *backend.LeaseRequest) {
		t.Helper()
		right := &backend.LeaseRequest{Definition: d, Key: "right", ID: "a", Permits: 1, TTL: 1e7}
		require.NoError(t, ask(ctx, []*backend.LeaseRequest{wrong, right}))
		require.Equal(t, backend.Failed, wrong.Outcome)
		require.ErrorContains(t, wrong.Err, "weirredis: "+name+": ")
		require.Equal(t, backend.Decided, right.Outcome)
	}
	for _, h := range []*backend.LeaseRequest{{}, lease(d, "", 1, time.Second), lease(d, "a", 1, 0)} {
		fails("acquire", b.Acquire, h)
	}
	fails("renew", b.Renew, lease(d, "a", 1, 0))
	fails("release", b.Release, lease(d, "", 1, 0))
	require.NoError(t, b.Acquire(ctx, nil))
	h := lease(d, "a", 1<<62, 1<<62)
	require.NoError(t, b.Acquire(ctx, []*backend.LeaseRequest{h}))
	require.False(t, h.OK)
}
