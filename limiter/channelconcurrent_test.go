package limiter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
)

// Many send and many receive, some of them impatient: each item that was sent is
// received once, never are more permits held than there are, and in the end they
// are all back.
func TestChannel_LosesNothingConcurrentSafe(t *testing.T) {
	for _, capacity := range []int{0, 1, 7} {
		const permits, senders, receivers, each = 5, 6, 4, 300
		inner := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: permits, QueueLimit: 3}))
		books := &watched{Concurrency: inner}
		ch := newChannel[int](t, books, capacity)
		sent, received := newTally(senders*each), newTally(senders*each)

		var sending, receiving sync.WaitGroup
		for s := range senders {
			sending.Go(func() { sendSome(t.Context(), ch, sent, s*each, each) })
		}
		for range receivers {
			receiving.Go(func() {
				for v := range ch.All(t.Context()) {
					received.add(v)
				}
			})
		}
		receiving.Go(func() { receiveImpatiently(t.Context(), ch, received) })
		sending.Wait()
		require.NoError(t, ch.Close())
		receiving.Wait()

		require.Equal(t, sent.counts(), received.counts())
		require.NotZero(t, sent.sum())
		require.LessOrEqual(t, books.peak.Load(), int64(permits))
		require.Zero(t, books.held.Load())
		require.EqualValues(t, permits, inner.Statistics().AvailablePermits)
		require.Zero(t, inner.Statistics().QueuedPermits)
	}
}

// Close in the middle: what Send reported as sent is received, nothing else is.
func TestChannel_CloseConcurrentSafe(t *testing.T) {
	const rounds, senders, each = 60, 4, 50
	for round := range rounds {
		l := weir.Must(limiter.NewConcurrency(limiter.ConcurrencyOptions{PermitLimit: 8, QueueLimit: 2}))
		ch := newChannel[int](t, l, round%3)
		sent, received := newTally(senders*each), newTally(senders*each)
		var sending, receiving sync.WaitGroup
		for s := range senders {
			sending.Go(func() { sendSome(t.Context(), ch, sent, s*each, each) })
		}
		for range 2 {
			receiving.Go(func() {
				for v := range ch.All(t.Context()) {
					if received.add(v); received.sum() >= int64(round) {
						_ = ch.Close()
					}
				}
			})
		}
		if round == 0 {
			_ = ch.Close()
		}
		sending.Wait()
		_ = ch.Close() // where fewer came through than it takes
		receiving.Wait()
		require.Equal(t, sent.counts(), received.counts())
		require.EqualValues(t, 8, l.Statistics().AvailablePermits)
	}
}

// sendSome sends n numbers from first in every way there is, and notes those of
// which it was told that they were sent.
func sendSome(ctx context.Context, ch *limiter.Channel[int], sent *tally, first, n int) {
	for v := first; v < first+n; v++ {
		var err error
		switch v % 3 {
		case 0:
			err = ch.Send(ctx, v)
		case 1:
			err = ch.TrySend(ctx, v)
		case 2:
			hurry, cancel := context.WithTimeout(ctx, time.Duration(v%50)*time.Microsecond)
			err = ch.Send(hurry, v)
			cancel()
		}
		if err == nil {
			sent.add(v)
		}
	}
}

func receiveImpatiently(ctx context.Context, ch *limiter.Channel[int], received *tally) {
	for {
		hurry, cancel := context.WithTimeout(ctx, 20*time.Microsecond)
		v, err := ch.Receive(hurry)
		cancel()
		switch {
		case err == nil:
			received.add(v)
		case errors.Is(err, limiter.ErrClosed):
			return
		}
	}
}

// watched counts the permits of a concurrency limiter from outside.
type watched struct {
	*limiter.Concurrency
	held, peak atomic.Int64
}

func (w *watched) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return w.watch(w.Concurrency.TryAcquire(ctx, n))
}

func (w *watched) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return w.watch(w.Concurrency.Acquire(ctx, n))
}

func (w *watched) watch(lease limiter.Lease, err error) (limiter.Lease, error) {
	if err != nil || !lease.Acquired() {
		return lease, err
	}
	held := w.held.Add(1)
	for peak := w.peak.Load(); held > peak && !w.peak.CompareAndSwap(peak, held); peak = w.peak.Load() {
	}
	return custom.Granted(lease.Permits(), func() {
		w.held.Add(-1)
		lease.Release()
	}), nil
}

// tally counts how often each number was seen.
type tally struct {
	seen  []atomic.Int32
	total atomic.Int64
}

func newTally(n int) *tally { return &tally{seen: make([]atomic.Int32, n)} }

func (c *tally) add(v int) {
	c.seen[v].Add(1)
	c.total.Add(1)
}

func (c *tally) sum() int64 { return c.total.Load() }

func (c *tally) counts() []int32 {
	counts := make([]int32, len(c.seen))
	for v := range c.seen {
		counts[v] = c.seen[v].Load()
	}
	return counts
}
