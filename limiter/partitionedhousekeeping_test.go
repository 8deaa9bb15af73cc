package limiter

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// onClose is a limiter that does something when it is closed.
type onClose struct {
	*Concurrency
	do func()
}

func (c onClose) Close() error {
	c.do()
	return c.Concurrency.Close()
}

func closes(do func(key int)) Factory[int] {
	return func(key int) (Limiter, error) {
		return onClose{weir.Must(NewConcurrency(ConcurrencyOptions{PermitLimit: 1})), func() { do(key) }}, nil
	}
}

var single = FactoryFor[int](ConcurrencyOptions{PermitLimit: 1})

// A partition that is used between the look at it and its turn to go is looked at
// again.
func TestHousekeeping_ComesBackToUsedPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *PartitionedLimiter[int, int]
		var used atomic.Bool
		p = newPartitioned(t, closes(func(own int) {
			if !used.CompareAndSwap(false, true) {
				return
			}
			for key := range 1000 {
				if key != own {
					mustAcquire(t, p, key, 1).Release()
				}
			}
		}), PartitionedOptions{IdleTimeout: time.Second})
		for key := range 1000 {
			mustAcquire(t, p, key, 1).Release()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, p.Len())
	})
}

func TestHousekeeping_WhileKeysKeepComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartitioned(t, single, PartitionedOptions{IdleTimeout: time.Second})
		for key := range 15_000 {
			mustAcquire(t, p, key, 1).Release()
			time.Sleep(time.Millisecond)
		}
		assert.Less(t, p.Len(), 1800)
	})
}

// A limiter that is not idle is asked every 100 ms, by one goroutine, however many keys come.
func TestHousekeeping_OneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		p := newPartitioned(t, func(key int) (Limiter, error) {
			if key >= 0 {
				return single(key)
			}
			w := weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Hour}))
			return hooked{FixedWindow: w, bad: "IdleDuration", does: func() { asked.Add(1) }}, nil
		}, PartitionedOptions{IdleTimeout: 90 * time.Millisecond})
		mustAcquire(t, p, -1, 1)
		for key := range 2000 {
			go func() {
				time.Sleep(time.Duration(key%100) * 100 * time.Millisecond)
				l, err := p.TryAcquire(t.Context(), key, 1)
				assert.NoError(t, err)
				l.Release()
			}()
		}
		time.Sleep(20*time.Second + 50*time.Millisecond)
		asked.Store(0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 100, asked.Load())
		assert.Equal(t, 1, p.Len())
	})
}

func TestPartitioned_DoneContext(t *testing.T) {
	made := 0
	p := newPartitioned(t, func(key int) (Limiter, error) {
		made++
		return single(key)
	}, PartitionedOptions{MaxPartitions: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, call := range []func(context.Context, int, int) (Lease, error){p.TryAcquire, p.Acquire} {
		_, err := call(ctx, 1, 1)
		require.ErrorIs(t, err, context.Canceled)
	}
	assert.Zero(t, made)
	mustAcquire(t, p, 1, 1)
	_, err := p.TryAcquire(ctx, 2, 1)
	require.ErrorIs(t, err, context.Canceled, "and is no rejection")
}

// A slow Close holds up the new key that evicts the limiter, and no other.
func TestPartitioned_SlowClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		p := newPartitioned(t, closes(func(int) {
			if slow.CompareAndSwap(false, true) {
				time.Sleep(time.Hour)
			}
		}), PartitionedOptions{MaxPartitions: 2})
		mustAcquire(t, p, 0, 1).Release()
		mustAcquire(t, p, 1, 1).Release()
		began := time.Now()
		go func() {
			_, err := p.TryAcquire(t.Context(), 10, 1)
			assert.NoError(t, err)
		}()
		synctest.Wait()
		mustAcquire(t, p, 11, 1).Release()
		assert.Zero(t, time.Since(began))
		time.Sleep(2 * time.Hour)
	})
}

type badCloser struct{ Limiter }

func (badCloser) Close() error { panic("boom") }

func TestPartitioned_PanicOfLateClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPartitioned(byKey(func(int) (Limiter, error) {
			time.Sleep(time.Second)
			return badCloser{NewUnlimited()}, nil
		}), nil)
		require.NoError(t, err)
		go func() { assert.Panics(t, func() { _, _ = p.TryAcquire(context.Background(), 1, 1) }) }()
		synctest.Wait()
		go func() { assert.NoError(t, p.Close()) }()
		_, err = p.TryAcquire(t.Context(), 1, 1)
		require.ErrorIs(t, err, ErrClosed)
		synctest.Wait()
	})
}

func TestPartitioned_KeyThatDoesNotEqualItself(t *testing.T) {
	p := newPartitioned(t, unlimitedEach[float64], PartitionedOptions{})
	_, err := p.TryAcquire(t.Context(), math.NaN(), 1)
	require.ErrorIs(t, err, ErrInvalidOptions)
	assert.Zero(t, p.Len())
}

// generous grants, and returns an error all the same.
type generous struct{ *Concurrency }

func (g generous) TryAcquire(ctx context.Context, n int) (Lease, error) {
	l, _ := g.Concurrency.TryAcquire(ctx, n)
	return l, errors.New("but")
}

func TestChain_LeaseWithErrorIsRefunded(t *testing.T) {
	g := generous{concurrent(1)}
	_, err := weir.Must(Chain(g)).TryAcquire(t.Context(), 1)
	require.Error(t, err)
	assert.Equal(t, Statistics{AvailablePermits: 1}, g.Statistics())
}

// Timers keep neither a limiter that is closed in memory, nor each other.
func TestHousekeeping_TimerKeepsNothing(t *testing.T) {
	p := weir.Must(NewPartitioned(byKey(single), &PartitionedOptions{IdleTimeout: 24 * time.Hour}))
	mustAcquire(t, p, 1, 1)
	timer := p.keys.sweep.Load()
	require.NoError(t, p.Reconfigure(PartitionedOptions{IdleTimeout: 48 * time.Hour}))
	assert.Same(t, timer, p.keys.sweep.Load(), "one is enough")
	require.NoError(t, p.Reconfigure(PartitionedOptions{IdleTimeout: time.Hour}))
	assert.NotSame(t, timer, p.keys.sweep.Load())
	require.NoError(t, p.Close())
	left := weak.Make(p)
	p = nil
	assert.Eventually(t, func() bool { runtime.GC(); return left.Value() == nil }, 10*time.Second, time.Millisecond)
}
