package limiter_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

func bytesBucket(limit int) *limiter.TokenBucket {
	return weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
		TokenLimit: limit, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: limit,
	}))
}

func TestChannel_CostOfItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := bytesBucket(5)
		ch, err := limiter.NewChannel(bucket, 10, &limiter.ChannelOptions[string]{Cost: func(s string) int { return len(s) - 1 }})
		require.NoError(t, err)
		require.NoError(t, ch.Send(t.Context(), "abcd"))
		assert.EqualValues(t, 2, bucket.Statistics().AvailablePermits)
		require.NoError(t, ch.TrySend(t.Context(), "a"), "an item may cost nothing")
		begin := time.Now()
		require.NoError(t, ch.Send(t.Context(), "abcde"))
		assert.Equal(t, 2*time.Second, time.Since(begin))
		require.ErrorIs(t, ch.Send(t.Context(), "abcdefg"), limiter.ErrPermitCount)
		require.ErrorIs(t, ch.Send(t.Context(), ""), limiter.ErrPermitCount)
		assert.Equal(t, 3, ch.Len())
	})
}

// Whatever of the program's panics or ends the goroutine in a send or a receive: no permit is lost, no item is
// delivered twice or lost, and the channel goes on.
func TestChannel_BadHooks(t *testing.T) {
	for name, does := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		for _, hook := range []string{"Cost", "Acquire", "Done of a sender", "Done of a receiver"} {
			t.Run(hook+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					bad := false
					at := func(here string) {
						if bad && here == hook {
							does()
						}
					}
					bucket := bytesBucket(9)
					ch, err := limiter.NewChannel(scripted(func(ctx context.Context, n int) (limiter.Lease, error) {
						at("Acquire")
						return bucket.Acquire(ctx, n)
					}), 1, &limiter.ChannelOptions[int]{Cost: func(int) int { at("Cost"); return 2 }})
					require.NoError(t, err)
					ctx := badContext{t.Context(), func() <-chan struct{} { at(hook); return t.Context().Done() }}
					if hook == "Done of a sender" { // it would have to wait
						require.NoError(t, ch.Send(t.Context(), 1))
					}
					before := bucket.Statistics()
					bad = true
					var wg sync.WaitGroup
					wg.Go(func() {
						defer func() { _ = recover() }()
						if hook == "Done of a receiver" {
							_, _ = ch.Receive(ctx)
						} else {
							_ = ch.Send(ctx, 2)
						}
						t.Error("the caller does not learn of it")
					})
					wg.Wait()
					bad = false
					assert.Equal(t, before, bucket.Statistics())
					if ch.Len() == 0 {
						require.NoError(t, ch.Send(t.Context(), 1))
					}
					got, err := ch.Receive(t.Context())
					require.NoError(t, err)
					assert.Equal(t, 1, got, "no waiter was left behind")
					assert.Zero(t, ch.Len())
					require.NoError(t, ch.Close())
				})
			})
		}
	}
}

// A channel may be made in a bubble and closed when that has ended.
func TestChannel_ClosedOutsideOfItsBubble(t *testing.T) {
	var ch *limiter.Channel[int]
	synctest.Test(t, func(t *testing.T) {
		ch = newChannel[int](t, bytesBucket(5), 1)
		require.NoError(t, ch.Send(t.Context(), 1))
	})
	require.NoError(t, ch.Close())
	require.ErrorIs(t, ch.Send(t.Context(), 1), limiter.ErrClosed)
	got, err := ch.Receive(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, got)
}

func TestChannel_ReleasePanics(t *testing.T) {
	ch, err := limiter.NewChannel[string](scripted(func(context.Context, int) (limiter.Lease, error) {
		return custom.Granted(1, func() { panic("boom") }), nil
	}), 1, nil)
	require.NoError(t, err)
	require.NoError(t, ch.Send(t.Context(), "an item"))
	got, err := ch.Receive(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "an item", got)
	require.NoError(t, ch.Close())
}
