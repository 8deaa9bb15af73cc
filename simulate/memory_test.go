package simulate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
)

// closing closes what a run has opened.
func (r *run) closing() (err error) {
	for _, f := range r.onClose {
		err = errors.Join(err, f())
	}
	return err
}

func TestSetup_Store(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(run)
		a, b := &Setup{run: r}, &Setup{Instance: 1, run: r}
		first := a.Store("shared")
		assert.Same(t, first, a.Store("shared"))
		assert.NotSame(t, a.Store("shared"), b.Store("shared"))
		o := limiter.FixedWindowOptions{PermitLimit: 1, Window: time.Hour}
		acquired := func(s *Setup, store string) bool {
			l := weir.Must(s.Store(store).FixedWindow("orders", o, nil))
			begun := time.Now()
			lease, err := l.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			assert.Greater(t, time.Since(begun), time.Millisecond, "a call takes time")
			return lease.Acquired()
		}
		assert.True(t, acquired(a, "shared"))
		assert.False(t, acquired(b, "shared"), "the instances share it")
		assert.True(t, acquired(b, "other"))
		require.NoError(t, r.closing())
		_, err := a.Store("shared").FixedWindow("orders", o, nil)
		assert.ErrorIs(t, err, limiter.ErrClosed)
		assert.Len(t, r.assumed, 2)
		assert.Contains(t, r.assumed, `The store "shared" is simulated in memory, and a call of it takes about a millisecond.`)
	})
}

func TestMemory_Leases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(run)
		l := weir.Must((&Setup{run: r}).Store("shared").Concurrency("it", limiter.ConcurrencyOptions{PermitLimit: 1, QueueLimit: 1}, nil))
		lease, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		time.AfterFunc(10*time.Minute, lease.Release)
		begun := time.Now()
		second, err := l.Acquire(t.Context(), 1)
		require.NoError(t, err)
		assert.InDelta(t, 10*time.Minute, time.Since(begun), float64(time.Second), "the lease was renewed until then")
		second.Release()
		require.NoError(t, r.closing())
	})
}

func TestMemory_Context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(run)
		(&Setup{run: r}).Store("shared")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		m := &memory{Memory: r.memories["shared"], halfway: time.Hour}
		_, _, err := m.Load(ctx, "it")
		assert.ErrorIs(t, err, context.Canceled)
		require.NoError(t, r.closing())
	})
}

func TestMemory_MakeSource(t *testing.T) {
	number := func(m memory, name, key string) float64 { return m.MakeSource(name, key).Float64() }
	m := memory{seed: 1}
	first := number(m, "a", "b")
	assert.InDelta(t, first, number(m, "a", "b"), 0)
	for _, other := range []float64{
		number(m, "ab", ""), number(m, "a", "c"), number(memory{seed: 2}, "a", "b"),
		number(memory{seed: 1, key: storeKey{instance: 1}}, "a", "b"), number(memory{seed: 1, key: storeKey{name: "s"}}, "a", "b"),
	} {
		assert.NotEqual(t, number(m, "a", "b"), other)
	}
}

// Of many instances, each has a time of its own for a call, and none a long one.
func TestSetup_StoreOfManyInstances(t *testing.T) {
	r := &run{scenario: Scenario{Instances: mostInstances}}
	times := map[time.Duration]bool{}
	for i := range mostInstances {
		d := r.callTime(i)
		times[d/2] = true
		assert.True(t, d > time.Millisecond && d <= 2010*time.Microsecond, "%d: %v", i, d)
	}
	assert.Len(t, times, mostInstances)
}
