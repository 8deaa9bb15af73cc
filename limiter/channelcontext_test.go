package limiter_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// What a limiter that was written elsewhere sees of the sender's context, while
// it decides and afterwards.
func TestSendContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Minute)
		defer cancel()
		var kept context.Context
		ch := newChannel[int](t, scripted(func(ctx context.Context, n int) (limiter.Lease, error) {
			kept = ctx
			want, _ := parent.Deadline()
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, want, deadline)
			for range 2 { // before Done was asked for, and after
				require.NoError(t, ctx.Err())
				require.Equal(t, "v", ctx.Value(key{}))
				select {
				case <-ctx.Done():
					t.Error("done already")
				default:
				}
			}
			return custom.Granted(n, nil), nil
		}), 1)
		require.NoError(t, ch.Send(parent, 1))
		<-kept.Done() // ended with the answer
		require.Error(t, kept.Err())

		closing := newChannel[int](t, scripted(func(ctx context.Context, n int) (limiter.Lease, error) {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			<-child.Done()
			assert.ErrorIs(t, context.Cause(child), limiter.ErrClosed)
			assert.ErrorIs(t, ctx.Err(), context.Canceled)
			return limiter.Lease{}, child.Err()
		}), 1)
		go func() { assert.ErrorIs(t, closing.Send(parent, 1), limiter.ErrClosed) }()
		synctest.Wait()
		require.NoError(t, closing.Close())
		synctest.Wait()
	})
}

// A limiter may look at its context only when it has long answered.
func TestSendContext_DoneLate(t *testing.T) {
	var kept context.Context
	ch := newChannel[int](t, scripted(func(ctx context.Context, n int) (limiter.Lease, error) {
		kept = ctx
		return custom.Granted(n, nil), nil
	}), 1)
	require.NoError(t, ch.Send(t.Context(), 1))
	<-kept.Done()
	require.ErrorIs(t, kept.Err(), context.Canceled)
}

// A limiter may look at its context without ever asking for Done.
func TestSendContext_Err(t *testing.T) {
	var ch *limiter.Channel[int]
	ch = newChannel[int](t, scripted(func(ctx context.Context, n int) (limiter.Lease, error) {
		require.NoError(t, ch.Close())
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		return limiter.Lease{}, ctx.Err()
	}), 1)
	require.ErrorIs(t, ch.Send(t.Context(), 1), limiter.ErrClosed)
}

// A channel that lives long keeps neither items nor contexts alive.
func TestChannel_KeepsNothingAlive(t *testing.T) {
	type key struct{}
	type thing struct{ _ [64]byte }
	ch := newChannel[*thing](t, scripted(func(ctx context.Context, n int) (limiter.Lease, error) {
		ctx.Done()
		return custom.Granted(n, nil), nil
	}), 4)
	var weakly []weak.Pointer[thing]
	for range 3 {
		item, request := new(thing), new(thing)
		weakly = append(weakly, weak.Make(item), weak.Make(request))
		require.NoError(t, ch.Send(context.WithValue(t.Context(), key{}, request), item))
		_, err := ch.Receive(t.Context())
		require.NoError(t, err)
	}
	runtime.GC()
	for i, w := range weakly {
		require.Nil(t, w.Value(), i)
	}
	require.NoError(t, ch.Close())
}

// A channel that was made outside a bubble, as a package variable is, may be
// used inside one and closed outside again.
func TestChannel_InAndOutOfBubbles(t *testing.T) {
	ch := newChannel[int](t, scripted(func(ctx context.Context, n int) (limiter.Lease, error) {
		ctx.Done()
		return custom.Granted(n, nil), nil
	}), 1)
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			require.NoError(t, ch.Send(t.Context(), 1))
			go func() { assert.NoError(t, ch.Send(t.Context(), 2)) }()
			synctest.Wait()
			for range 2 {
				_, err := ch.Receive(t.Context())
				require.NoError(t, err)
			}
			synctest.Wait()
		})
	}
	require.NoError(t, ch.Close())
}
