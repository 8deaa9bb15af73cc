package weirpostgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
)

func lease(d *backend.Definition, key, id string, permits int64) *backend.LeaseRequest {
	return &backend.LeaseRequest{Definition: d, Key: key, ID: id, Permits: permits, TTL: 60_000_000}
}

// listen listens until the test ends, and returns where the notices come out.
func listen(t *testing.T, b *Backend) <-chan backend.Notice {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	notices, ready, ended := make(chan backend.Notice, 1000), make(chan struct{}), make(chan error, 1)
	go func() { ended <- b.Listen(ctx, func() { close(ready) }, func(n backend.Notice) { notices <- n }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); assert.ErrorIs(t, <-ended, context.Canceled) })
	return notices
}

// A notice takes a lock that all who commit one share, so there is none without waiting callers.
func TestReleaseTellsWhoWaits(t *testing.T) {
	b, _ := shared(t)
	notices := listen(t, b)
	d := concurrency(t, b, "c", 1)
	for _, waits := range []bool{false, true} {
		key := fmt.Sprint(waits)
		h := lease(d, key, "a", 1)
		require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{h}))
		other := lease(d, key, "b", 1)
		other.Waiting = waits
		require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{other}))
		require.False(t, other.OK)
		require.NoError(t, b.Release(t.Context(), []*backend.LeaseRequest{h}))
	}
	assert.Equal(t, backend.Notice{Name: "c", Key: "true", Released: true}, <-notices)
}

// A waiting caller that was rejected gets the notice of the release that it did not see, however close the two are.
func TestNoReleaseIsMissedConcurrentSafe(t *testing.T) {
	b, _ := shared(t)
	notices := listen(t, b)
	d := concurrency(t, b, "c", 1)
	for i := range 150 {
		key := fmt.Sprint(i)
		h, other := lease(d, key, "a", 1), lease(d, key, "b", 1)
		other.Waiting = true
		require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{h}))
		var both sync.WaitGroup
		both.Go(func() { assert.NoError(t, b.Release(context.Background(), []*backend.LeaseRequest{h})) })
		time.Sleep(rand.N(600 * time.Microsecond)) // so that each is first now and then
		require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{other}))
		both.Wait()
		if other.OK {
			continue
		}
		select {
		case n := <-notices:
			require.Equal(t, key, n.Key)
		case <-time.After(10 * time.Second):
			t.Fatal("no notice of a release")
		}
	}
}

// Holds, renewals and releases of overlapping sets, in whatever order: no deadlock, never more than there is.
func TestLeasesConcurrentSafe(t *testing.T) {
	b, _ := shared(t)
	const limit, places, workers = 3, 5, 8
	d := concurrency(t, b, "c", limit)
	var inUse [places]atomic.Int64
	var last [places]atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range 40 {
				var requests []*backend.LeaseRequest
				for k := range places {
					for range random.IntN(3) {
						requests = append(requests, lease(d, fmt.Sprint(k), fmt.Sprint(w, i, k, random.Int()), 1+random.Int64N(2)))
						requests[len(requests)-1].Waiting = random.IntN(2) == 0
					}
				}
				if !assert.NoError(t, b.Acquire(context.Background(), requests)) {
					return
				}
				requests = slices.DeleteFunc(requests, func(h *backend.LeaseRequest) bool { return !h.OK })
				for _, h := range requests {
					k := h.Key[0] - '0'
					assert.LessOrEqual(t, inUse[k].Add(h.Permits), int64(limit))
					last[k].Store(max(last[k].Load(), h.Fence))
				}
				assert.NoError(t, b.Renew(context.Background(), requests))
				for _, h := range requests {
					inUse[h.Key[0]-'0'].Add(-h.Permits)
				}
				assert.NoError(t, b.Release(context.Background(), requests))
				for _, h := range requests {
					assert.True(t, h.OK)
				}
				if i%10 == 0 {
					_, _, err := b.sweeper.sweepRange(context.Background(), 0, 100)
					assert.NoError(t, err)
				}
			}
		})
	}
	all.Wait()
	for k := range places {
		h := lease(d, fmt.Sprint(k), "all", limit)
		require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{h}))
		assert.True(t, h.OK, "all were released")
		assert.Greater(t, h.Fence, last[k].Load())
		require.NoError(t, b.Release(t.Context(), []*backend.LeaseRequest{h}))
	}
}

// The row of a key goes away when it has no leases, and the fences rise all the same.
func TestFencesRiseAfterASweep(t *testing.T) {
	server := postgres(t)
	pool := connect(t, server.URL, nil)
	schema := freshSchema(t, pool)
	steerable(t, pool, schema)
	s := newSteered(t, server.URL, schema)
	defer func() { require.NoError(t, s.Close()) }()
	d := concurrency(t, s.Backend, "c", 2)
	var last int64
	for i, at := range []int64{0, 1, 1, -5_000_000, -4_000_000, 10, 60_000_000} {
		s.setTime(d.Anchor + at)
		h := lease(d, "", fmt.Sprint(i), 1)
		require.NoError(t, s.Acquire(t.Context(), []*backend.LeaseRequest{h}))
		require.True(t, h.OK)
		assert.Greater(t, h.Fence, last, "at %d", at)
		last = h.Fence
		require.NoError(t, s.Release(t.Context(), []*backend.LeaseRequest{h}))
		keys(t, s.Backend, "c")
	}
	s.setTime(d.Anchor + 70_000_000)
	assert.Zero(t, keys(t, s.Backend, "c"))
}

// A sweep that is not committed yet locks no semaphore with a live lease.
func TestSweepLocksNoLiveLease(t *testing.T) {
	b, pool := shared(t)
	d := concurrency(t, b, "c", 2)
	first, second := lease(d, "", "1", 1), lease(d, "", "2", 1)
	require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{first}))
	require.True(t, first.OK)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), b.sql.sweep, int64(0), int64(128))
	require.NoError(t, err)
	require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{second}))
	require.NoError(t, second.Err)
	assert.True(t, second.OK)
}

func TestListenEndsWithItsConnection(t *testing.T) {
	b, pool := shared(t)
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() { ended <- b.Listen(context.Background(), func() { close(ready) }, func(backend.Notice) {}) }()
	<-ready
	killed := count(t, pool, `select count(pg_terminate_backend(pid)) from pg_stat_activity where query like 'listen "weir:""' || $1 || '%'`, b.schema)
	require.EqualValues(t, 1, killed)
	assert.ErrorContains(t, <-ended, "weirpostgres: listen")
	assert.NoError(t, b.Decide(t.Context(), []*backend.Batch{take(bucket(t, b, "a", 1, 1, 1), "", 1)}))
}

// A Listen, and what it needs to find out that it works, are possible with one connection in the pool.
func TestOneConnectionIsEnough(t *testing.T) {
	server := postgres(t)
	schema := freshSchema(t, connect(t, server.URL, nil))
	small := connect(t, server.URL+"&pool_max_conns=1", nil)
	b := newBackend(t, small, BackendOptions{Schema: schema})
	notices := listen(t, b)
	done, err := b.Define(t.Context(), 0, bucket(t, b, "a", 1, 1, 1))
	require.NoError(t, err)
	require.True(t, done)
	assert.Equal(t, backend.Notice{Name: "a"}, <-notices)
}

// A step back of the server's clock does not keep the permits of an instance that has died.
func TestHold_ClockStepsBack(t *testing.T) {
	pool := connect(t, postgres(t).URL, nil)
	schema := freshSchema(t, pool)
	steerable(t, pool, schema)
	b := newSteered(t, postgres(t).URL, schema)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	d := concurrency(t, b.Backend, "c", 2)
	now := time.Now().UnixMicro()
	hour, ttl := time.Hour.Microseconds(), int64(60_000_000)
	ask := func(at int64, id string) *backend.LeaseRequest {
		b.setTime(at)
		h := lease(d, "key", id, 1)
		require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{h}))
		return h
	}
	require.True(t, ask(now, "dead").OK)
	require.True(t, ask(now, "alive").OK)
	require.False(t, ask(now+1, "other").OK)
	now -= hour
	require.False(t, ask(now, "other").OK, "the step by itself ends nothing")
	b.setTime(now + ttl/2)
	alive := lease(d, "key", "alive", 1)
	require.NoError(t, b.Renew(t.Context(), []*backend.LeaseRequest{alive}))
	require.True(t, alive.OK)
	rejected := ask(now+ttl/2, "other")
	require.False(t, rejected.OK)
	require.LessOrEqual(t, rejected.NextExpiry, ttl/2)
	require.True(t, ask(now+ttl+1, "other").OK, "the dead lease ends a TTL after the step")
	require.False(t, ask(now+ttl+2, "another").OK, "the other lease was renewed")
}
