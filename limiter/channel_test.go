package limiter_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// scripted is a limiter whose every answer is that of a function.
type scripted func(ctx context.Context, n int) (limiter.Lease, error)

func (f scripted) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) { return f(ctx, n) }
func (f scripted) Acquire(ctx context.Context, n int) (limiter.Lease, error)    { return f(ctx, n) }

// ledger grants everything and keeps books.
type ledger struct {
	before             func() // runs before each grant
	held, peak         atomic.Int64
	released, refunded atomic.Int64
	asked              atomic.Int64
}

func (b *ledger) TryAcquire(_ context.Context, n int) (limiter.Lease, error) {
	b.asked.Add(1)
	if b.before != nil {
		b.before()
	}
	held := b.held.Add(int64(n))
	for peak := b.peak.Load(); held > peak && !b.peak.CompareAndSwap(peak, held); peak = b.peak.Load() {
	}
	back := func(count *atomic.Int64) func() {
		return func() {
			b.held.Add(-int64(n))
			count.Add(1)
		}
	}
	return custom.GrantedRefundable(n, back(&b.released), back(&b.refunded)), nil
}

func (b *ledger) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return b.TryAcquire(ctx, n)
}

func newChannel[T any](t testing.TB, l limiter.Limiter, capacity int) *limiter.Channel[T] {
	t.Helper()
	ch, err := limiter.NewChannel[T](l, capacity, nil)
	require.NoError(t, err)
	return ch
}

func TestNewChannel_Errors(t *testing.T) {
	_, err := limiter.NewChannel[int](nil, -1, nil)
	require.ErrorIs(t, err, limiter.ErrInvalidOptions)
	require.ErrorContains(t, err, "l must not be nil")
	require.ErrorContains(t, err, "capacity must be at least 0, got -1")

	_, err = limiter.NewChannel[int](limiter.NewUnlimited(), -1, nil)
	require.ErrorContains(t, err, "capacity")
	require.NotContains(t, err.Error(), "nil")
}

func TestChannel_Order(t *testing.T) {
	ch := newChannel[int](t, limiter.NewUnlimited(), 3)
	for v := range 3 {
		require.NoError(t, ch.Send(t.Context(), v))
		require.Equal(t, v+1, ch.Len())
	}
	require.Equal(t, 3, ch.Cap())
	for want := range 3 {
		v, err := ch.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
	require.Zero(t, ch.Len())
}

func TestChannel_ReceiveReleases(t *testing.T) {
	books := &ledger{}
	ch := newChannel[string](t, books, 2)
	require.NoError(t, ch.Send(t.Context(), "a"))
	require.NoError(t, ch.TrySend(t.Context(), "b"))
	require.EqualValues(t, 2, books.held.Load())

	for range 2 {
		_, err := ch.Receive(t.Context())
		require.NoError(t, err)
	}
	require.EqualValues(t, 0, books.held.Load())
	require.EqualValues(t, 2, books.released.Load())
	require.EqualValues(t, 0, books.refunded.Load())
}

func TestChannel_SendRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: 1, TokensPerPeriod: 1, ReplenishmentPeriod: time.Minute,
		}))
		ch := newChannel[int](t, l, 10)
		require.NoError(t, ch.Send(t.Context(), 1))
		time.Sleep(20 * time.Second)

		for _, send := range []func(context.Context, int) error{ch.Send, ch.TrySend} {
			err := send(t.Context(), 2)
			rejected, ok := errors.AsType[*limiter.SendRejectedError](err)
			require.True(t, ok, "%v", err)
			require.False(t, rejected.Lease.Acquired())
			after, known := rejected.Lease.RetryAfter()
			require.True(t, known)
			require.Equal(t, 40*time.Second, after)
			require.ErrorContains(t, err, "retry after 40s")
		}
		require.Equal(t, 1, ch.Len())
	})
}

func TestRejectedError_Error(t *testing.T) {
	for want, lease := range map[string]limiter.Lease{
		"limiter: rejected":                            {},
		"limiter: rejected: too hot":                   custom.Rejected(0, "too hot"),
		"limiter: rejected, retry after 2s":            custom.Rejected(2*time.Second, ""),
		"limiter: rejected: too hot, retry after 1m0s": custom.Rejected(time.Minute, "too hot"),
	} {
		require.EqualError(t, &limiter.SendRejectedError{Lease: lease}, want)
	}
}

func TestChannel_TrySendFull(t *testing.T) {
	books := &ledger{}
	ch := newChannel[int](t, books, 1)
	require.NoError(t, ch.TrySend(t.Context(), 1))
	require.ErrorIs(t, ch.TrySend(t.Context(), 2), limiter.ErrChannelFull)
	require.EqualValues(t, 1, books.asked.Load())
}

// The room can go while the limiter is asked: the permit must not be lost.
func TestChannel_TrySendRefunds(t *testing.T) {
	books := &ledger{}
	ch := newChannel[int](t, books, 1)
	books.before = func() {
		books.before = nil
		require.NoError(t, ch.TrySend(t.Context(), 1))
	}
	require.ErrorIs(t, ch.TrySend(t.Context(), 2), limiter.ErrChannelFull)
	require.EqualValues(t, 1, books.refunded.Load())
	require.EqualValues(t, 1, books.held.Load())

	v, err := ch.Receive(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, v)
	require.Zero(t, ch.Len())
}

func TestChannel_CloseWhileLimiterGrants(t *testing.T) {
	for name, send := range map[string]func(*limiter.Channel[int]) error{
		"Send":    func(ch *limiter.Channel[int]) error { return ch.Send(t.Context(), 1) },
		"TrySend": func(ch *limiter.Channel[int]) error { return ch.TrySend(t.Context(), 1) },
	} {
		t.Run(name, func(t *testing.T) {
			books := &ledger{}
			ch := newChannel[int](t, books, 1)
			books.before = func() { require.NoError(t, ch.Close()) }
			require.ErrorIs(t, send(ch), limiter.ErrClosed)
			require.EqualValues(t, 1, books.refunded.Load())
			require.EqualValues(t, 0, books.held.Load())
			require.Zero(t, ch.Len())
		})
	}
}

// Close must reach senders in the limiter's queue, without closing the limiter.
func TestChannel_CloseEndsSendsInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 5}))
		ch := newChannel[int](t, l, 10)
		require.NoError(t, ch.Send(t.Context(), 1))
		for range 3 {
			go func() { assert.ErrorIs(t, ch.Send(t.Context(), 2), limiter.ErrClosed) }()
		}
		synctest.Wait()
		require.EqualValues(t, 3, l.Statistics().QueuedPermits)

		require.NoError(t, ch.Close())
		synctest.Wait()
		require.Equal(t, limiter.Statistics{SuccessfulLeases: 1}, l.Statistics())

		v, err := ch.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, v)
		lease, err := l.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, lease.Acquired(), "the limiter is not closed, and the permit is back")
	})
}

func TestChannel_CloseEndsSendsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 10, Window: time.Hour}))
		ch := newChannel[int](t, l, 2)
		for v := range 2 {
			require.NoError(t, ch.Send(t.Context(), v))
		}
		for range 3 {
			go func() { assert.ErrorIs(t, ch.Send(t.Context(), 9), limiter.ErrClosed) }()
		}
		synctest.Wait()
		require.EqualValues(t, 5, l.Statistics().AvailablePermits)

		require.NoError(t, ch.Close())
		require.NoError(t, ch.Close(), "again")
		synctest.Wait()
		require.Equal(t, limiter.Statistics{AvailablePermits: 8, SuccessfulLeases: 2}, l.Statistics(), "three sends came to nothing")

		require.Equal(t, []int{0, 1}, slices.Collect(ch.All(t.Context())))
		_, err := ch.Receive(t.Context())
		require.ErrorIs(t, err, limiter.ErrClosed)
		require.ErrorIs(t, ch.Send(t.Context(), 3), limiter.ErrClosed)
		require.ErrorIs(t, ch.TrySend(t.Context(), 3), limiter.ErrClosed)
		require.EqualValues(t, 8, l.Statistics().AvailablePermits)
	})
}

func TestChannel_CloseEndsReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChannel[int](t, limiter.NewUnlimited(), 2)
		for range 3 {
			go func() {
				v, err := ch.Receive(t.Context())
				assert.ErrorIs(t, err, limiter.ErrClosed)
				assert.Zero(t, v)
			}()
		}
		synctest.Wait()
		require.NoError(t, ch.Close())
		synctest.Wait()
	})
}

func TestChannel_CancelledSend(t *testing.T) {
	errLunch := errors.New("lunch")
	for name, l := range map[string]func() limiter.Limiter{
		"waiting for room": func() limiter.Limiter {
			return weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 2, Window: time.Hour}))
		},
		"waiting for a permit": func() limiter.Limiter {
			return weir.Must(limiter.NewFixedWindow(limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour, QueueLimit: 1}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := l()
				ch := newChannel[int](t, l, 1)
				require.NoError(t, ch.Send(t.Context(), 1))
				before := l.(limiter.StatisticsProvider).Statistics()

				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					err := ch.Send(ctx, 2)
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorIs(t, err, errLunch)
				}()
				synctest.Wait()
				cancel(errLunch)
				synctest.Wait()

				require.Equal(t, before, l.(limiter.StatisticsProvider).Statistics())
				require.NoError(t, ch.Close())
				require.Equal(t, []int{1}, slices.Collect(ch.All(t.Context())))
			})
		})
	}
}

func TestChannel_DoneContext(t *testing.T) {
	books := &ledger{}
	ch := newChannel[int](t, books, 5)
	require.NoError(t, ch.Send(t.Context(), 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	require.ErrorIs(t, ch.Send(ctx, 2), context.Canceled)
	require.ErrorIs(t, ch.TrySend(ctx, 2), context.Canceled)
	_, err := ch.Receive(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, books.asked.Load())
	require.Equal(t, 1, ch.Len())

	require.NoError(t, ch.Close())
	require.ErrorIs(t, ch.Send(ctx, 2), context.Canceled)
}

func TestChannel_CancelledReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChannel[int](t, limiter.NewUnlimited(), 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := ch.Receive(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, ch.TrySend(t.Context(), 1), limiter.ErrChannelFull, "there is no receiver any more")
	})
}

// Senders that wait for room come before later senders.
func TestChannel_RoomGoesToWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChannel[int](t, limiter.NewUnlimited(), 1)
		require.NoError(t, ch.Send(t.Context(), 0))
		for v := 1; v < 4; v++ {
			go func() { assert.NoError(t, ch.Send(t.Context(), v)) }()
			synctest.Wait()
		}
		for want := range 4 {
			v, err := ch.Receive(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, v)
			if want < 3 {
				require.Equal(t, 1, ch.Len(), "filled again at once")
				require.ErrorIs(t, ch.TrySend(t.Context(), 9), limiter.ErrChannelFull)
			}
		}
	})
}

// Those in the middle and at the ends of a list of waiters leave it.
func TestChannel_WaitersLeaveInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChannel[int](t, limiter.NewUnlimited(), 0)
		var cancels [5]context.CancelFunc
		for v := range cancels {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[v] = cancel
			go func() {
				if err := ch.Send(ctx, v); err != nil {
					assert.ErrorIs(t, err, context.Canceled)
				}
			}()
			synctest.Wait()
		}
		for _, v := range []int{2, 4, 0} {
			cancels[v]()
			synctest.Wait()
		}
		for _, want := range []int{1, 3} {
			v, err := ch.Receive(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, v)
		}
		cancels[1]()
		cancels[3]()
	})
}

func TestChannel_Unbuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		books := &ledger{}
		ch := newChannel[int](t, books, 0)
		require.Zero(t, ch.Cap())
		require.ErrorIs(t, ch.TrySend(t.Context(), 1), limiter.ErrChannelFull)

		var sent atomic.Bool
		go func() {
			assert.NoError(t, ch.Send(t.Context(), 1))
			sent.Store(true)
		}()
		synctest.Wait()
		require.False(t, sent.Load())
		require.EqualValues(t, 1, books.held.Load())
		require.Zero(t, ch.Len())
		v, err := ch.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, v)
		synctest.Wait()
		require.True(t, sent.Load())

		go func() {
			v, err := ch.Receive(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, 2, v)
		}()
		synctest.Wait()
		require.NoError(t, ch.TrySend(t.Context(), 2), "there is a receiver")
		synctest.Wait()
		require.EqualValues(t, 0, books.held.Load())
	})
}

// Without a buffer, an item that was not received before Close was not sent.
func TestChannel_UnbufferedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		books := &ledger{}
		ch := newChannel[int](t, books, 0)
		go func() { assert.ErrorIs(t, ch.Send(t.Context(), 1), limiter.ErrClosed) }()
		synctest.Wait()
		require.NoError(t, ch.Close())
		_, err := ch.Receive(t.Context())
		require.ErrorIs(t, err, limiter.ErrClosed)
		synctest.Wait()
		require.EqualValues(t, 1, books.refunded.Load())
	})
}

func TestChannel_PacesSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{
			TokenLimit: 2, TokensPerPeriod: 1, ReplenishmentPeriod: time.Second, QueueLimit: 1,
		}))
		ch := newChannel[int](t, l, 0)
		start := time.Now()
		go func() {
			for v := range 5 {
				assert.NoError(t, ch.Send(t.Context(), v))
			}
			assert.NoError(t, ch.Close())
		}()
		var at []time.Duration
		for range ch.All(t.Context()) {
			at = append(at, time.Since(start))
		}
		require.Equal(t, []time.Duration{0, 0, time.Second, 2 * time.Second, 3 * time.Second}, at)
	})
}

func TestChannel_ZeroValue(t *testing.T) {
	var ch limiter.Channel[int]
	require.ErrorIs(t, ch.Send(t.Context(), 1), limiter.ErrClosed)
	require.ErrorIs(t, ch.TrySend(t.Context(), 1), limiter.ErrClosed)
	_, err := ch.Receive(t.Context())
	require.ErrorIs(t, err, limiter.ErrClosed)
	require.Empty(t, slices.Collect(ch.All(t.Context())))
	require.Zero(t, ch.Len())
	require.Zero(t, ch.Cap())
	require.NoError(t, ch.Close())
}

func TestChannel_All(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ch := newChannel[int](t, limiter.NewUnlimited(), 4)
		for v := range 4 {
			require.NoError(t, ch.Send(t.Context(), v))
		}
		for v := range ch.All(t.Context()) {
			require.Zero(t, v)
			break
		}
		require.Equal(t, 3, ch.Len(), "breaking out of the loop loses no item")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, []int{1, 2, 3}, slices.Collect(ch.All(ctx)))
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	})
}

func TestChannel_Nils(t *testing.T) {
	ch := newChannel[error](t, limiter.NewUnlimited(), 1)
	require.NoError(t, ch.Send(t.Context(), nil))
	v, err := ch.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, v)

	pointers := newChannel[*int](t, limiter.NewUnlimited(), 1)
	require.NoError(t, pointers.Send(t.Context(), nil))
	require.NoError(t, pointers.Close())
	require.Equal(t, []*int{nil}, slices.Collect(pointers.All(t.Context())))
}

func TestChannel_LargeItems(t *testing.T) {
	type page [4096]byte
	ch := newChannel[page](t, limiter.NewUnlimited(), 3)
	for v := range byte(3) {
		require.NoError(t, ch.Send(t.Context(), page{0: v, 4095: v}))
	}
	for v := range byte(3) {
		p, err := ch.Receive(t.Context())
		require.NoError(t, err)
		require.Equal(t, page{0: v, 4095: v}, p)
	}
}

// A capacity is a bound, not an allocation.
func TestChannel_Memory(t *testing.T) {
	ch := newChannel[int](t, limiter.NewUnlimited(), math.MaxInt)
	const n = 1000
	for v := range n {
		require.NoError(t, ch.TrySend(t.Context(), v))
	}
	require.NoError(t, ch.Close())
	require.Len(t, slices.Collect(ch.All(t.Context())), n)
}

// The buffer against a slice, through every way of wrapping around and growing.
func TestChannel_IsAQueue(t *testing.T) {
	for capacity := 1; capacity < 40; capacity += 3 {
		random := rand.New(rand.NewPCG(1, uint64(capacity)))
		ch := newChannel[int](t, limiter.NewUnlimited(), capacity)
		var model []int
		for v := range 500 {
			if random.IntN(20) < 11 {
				err := ch.TrySend(t.Context(), v)
				if len(model) == capacity {
					require.ErrorIs(t, err, limiter.ErrChannelFull)
				} else {
					require.NoError(t, err)
					model = append(model, v)
				}
			} else if len(model) > 0 {
				got, err := ch.Receive(t.Context())
				require.NoError(t, err)
				require.Equal(t, model[0], got)
				model = model[1:]
			}
			require.Equal(t, len(model), ch.Len())
		}
	}
}

func TestChannel_LimiterErrors(t *testing.T) {
	l := limiter.NewUnlimited()
	ch := newChannel[int](t, l, 1)
	require.NoError(t, l.Close())
	require.Equal(t, limiter.ErrClosed, ch.Send(t.Context(), 1))
	require.Equal(t, limiter.ErrClosed, ch.TrySend(t.Context(), 1))

	errStore := errors.New("store is down")
	var refunds int
	ch = newChannel[int](t, scripted(func(context.Context, int) (limiter.Lease, error) {
		return custom.GrantedRefundable(1, nil, func() { refunds++ }), errStore
	}), 1)
	require.ErrorIs(t, ch.Send(t.Context(), 1), errStore)
	require.ErrorIs(t, ch.TrySend(t.Context(), 1), errStore)
	require.Equal(t, 2, refunds, "granted with an error")
	require.Zero(t, ch.Len())
}

func TestChannel_LimiterPanics(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	ch := newChannel[int](t, scripted(func(ctx context.Context, n int) (limiter.Lease, error) {
		if parent.Err() != nil {
			return custom.Granted(n, nil), nil //nolint:nilerr // parent stands for "has panicked"
		}
		done := ctx.Done()
		cancel()
		<-done // also the context is given up in the middle
		panic("bug")
	}), 1)
	require.PanicsWithValue(t, "bug", func() { _ = ch.Send(parent, 1) })
	require.NoError(t, ch.Send(t.Context(), 2))
	require.Equal(t, 1, ch.Len())
}

func TestChannel_Allocations(t *testing.T) {
	unused := limiter.TokenBucketOptions{TokenLimit: math.MaxInt32, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
	for name, l := range map[string]limiter.Limiter{
		"Unlimited":   limiter.NewUnlimited(),
		"TokenBucket": weir.Must(limiter.NewTokenBucket(unused)),
		"Concurrency": weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 1})),
	} {
		t.Run(name, func(t *testing.T) {
			ch := newChannel[int](t, l, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			through := func(send func(context.Context, int) error) float64 {
				return testing.AllocsPerRun(200, func() {
					if send(ctx, 1) != nil {
						t.Fatal("not sent")
					}
					if _, err := ch.Receive(ctx); err != nil {
						t.Fatal(err)
					}
				})
			}
			require.Zero(t, through(ch.TrySend))
			require.Equal(t, 1.0, through(ch.Send), "the context that ends with the channel")
		})
	}
}

func BenchmarkChannel(b *testing.B) {
	ch := newChannel[int](b, limiter.NewUnlimited(), 1)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_ = ch.Send(ctx, 1)
		_, _ = ch.Receive(ctx)
	}
}
