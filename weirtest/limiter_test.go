package weirtest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/weirtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLimiter_FollowsTheScript(t *testing.T) {
	away := errors.New("store is away")
	l := weirtest.NewLimiter(weirtest.Fail(away), weirtest.Reject(time.Second, "busy"), weirtest.Grant())

	_, err := l.Acquire(t.Context(), 1)
	require.Same(t, away, err)
	lease, err := l.TryAcquire(t.Context(), 2)
	require.NoError(t, err)
	assert.Equal(t, "rejected: busy, retry after 1s", lease.String())
	for range 2 { // the last answer is given again
		lease, err = l.Acquire(t.Context(), 3)
		require.NoError(t, err)
		assert.Equal(t, 3, lease.Permits())
	}
	assert.Equal(t, []weirtest.Call{
		{Permits: 1, State: weirtest.Failed, Err: away},
		{Permits: 2, State: weirtest.Rejected, Try: true},
		{Permits: 3, State: weirtest.Held, Charged: 3},
		{Permits: 3, State: weirtest.Held, Charged: 3},
	}, l.Calls())

	l.SetScript(weirtest.Reject(0, ""))
	assert.Equal(t, limiter.Lease{}, weir.Must(l.Acquire(t.Context(), 1)))
	l.SetScript()
	assert.True(t, weir.Must(l.Acquire(t.Context(), 1)).Acquired())
}

func TestLimiter_ZeroValueGrants(t *testing.T) {
	var l weirtest.Limiter
	lease := weir.Must(l.TryAcquire(t.Context(), 0))
	assert.True(t, lease.Acquired())
	assert.Equal(t, 1, l.Count(weirtest.Held))
}

func TestLimiter_RefusesWhatEveryLimiterRefuses(t *testing.T) {
	l := weirtest.NewLimiter(weirtest.Reject(0, "taken"), weirtest.Grant())
	_, err := l.TryAcquire(t.Context(), -1)
	require.ErrorIs(t, err, limiter.ErrPermitCount)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("client has gone")
	cancel(gone)
	_, err = l.Acquire(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, gone)
	assert.Equal(t, "taken", weir.Must(l.Acquire(t.Context(), 1)).Reason(), "neither took the answer")
}

func TestLimiter_LeaseStates(t *testing.T) {
	var l weirtest.Limiter
	lease := weir.Must(l.Acquire(t.Context(), 2))
	adjusted, ok := lease.Adjust(5)
	require.True(t, ok)
	adjusted.Release()
	lease.Release()
	_, ok = adjusted.Adjust(7)
	require.True(t, ok)

	rejects := weirtest.NewLimiter(weirtest.Reject(0, ""))
	chain := weir.Must(limiter.Chain(&l, rejects))
	assert.False(t, weir.Must(chain.Acquire(t.Context(), 1)).Acquired())

	assert.Equal(t, []weirtest.Call{
		{Permits: 2, State: weirtest.Released, Charged: 7},
		{Permits: 1, State: weirtest.Refunded},
	}, l.Calls())
}

func TestAnswer_WhenAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		l := weirtest.NewLimiter(weirtest.Grant().When(free).After(time.Second))
		start := time.Now()
		done := make(chan time.Duration)
		go func() {
			lease := weir.Must(l.Acquire(t.Context(), 1))
			assert.True(t, lease.Acquired())
			done <- time.Since(start)
		}()
		time.Sleep(time.Hour)
		assert.Equal(t, 1, l.Count(weirtest.Waiting))
		close(free)
		assert.Equal(t, time.Hour+time.Second, <-done)
		assert.Equal(t, 1, l.Count(weirtest.Held))
	})
}

func TestAnswer_ContextEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, a := range []weirtest.Answer{
			weirtest.Grant().When(make(chan struct{})),
			weirtest.Grant().After(time.Hour),
		} {
			l := weirtest.NewLimiter(a)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			_, err := l.TryAcquire(ctx, 1)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, time.Second, time.Since(start))
			assert.Equal(t, 1, l.Count(weirtest.Failed))
		}
	})
}

func TestState_String(t *testing.T) {
	assert.Equal(t, "refunded", weirtest.Refunded.String())
	assert.Equal(t, "State(9)", weirtest.State(9).String())
}

func TestLimiter_ConcurrentSafe(t *testing.T) {
	l := weirtest.NewLimiter(weirtest.Reject(0, ""), weirtest.Grant())
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				lease := weir.Must(l.Acquire(t.Context(), 1))
				lease.Adjust(2)
				lease.Release()
				l.Count(weirtest.Held)
			}
		})
	}
	group.Wait()
	assert.Equal(t, 1, l.Count(weirtest.Rejected))
	assert.Equal(t, 799, l.Count(weirtest.Released))
}
