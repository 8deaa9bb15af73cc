package limiter

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// manualWindows makes limiters that housekeeping drives. What does is called by the method named bad of each
// for which isBad says so.
func manualWindows(bad string, isBad func(key int) bool, does func(key int)) Factory[int] {
	return func(key int) (Limiter, error) {
		w := weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: 100 * time.Millisecond, ManualReplenishment: true}))
		h := hooked{FixedWindow: w}
		if isBad(key) {
			h.bad, h.does = bad, func() { does(key) }
		}
		return h, nil
	}
}

// A hook that panics at every replenishEvery does not fill the log.
func TestPartitioned_PanicLogRate(t *testing.T) {
	logged := logTo(t)
	synctest.Test(t, func(t *testing.T) {
		var panicked atomic.Int64
		p, err := NewPartitioned(byKey(manualWindows("TryReplenish", func(int) bool { return true }, func(int) {
			panicked.Add(1)
			panic("boom")
		})), &PartitionedOptions{IdleTimeout: time.Hour})
		require.NoError(t, err)
		for key := range 10 {
			mustAcquire(t, p, key, 1)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Greater(t, panicked.Load(), int64(5000))
		lines := strings.Count(logged.String(), "recovered a panic")
		assert.LessOrEqual(t, lines, 7)
		assert.GreaterOrEqual(t, lines, 5)
		assert.Contains(t, logged.String(), "partitionedhooklimits_test.go", "the stack says where")
		require.NoError(t, p.Close())
	})
	synctest.Test(t, func(t *testing.T) { // the clock of another bubble says nothing of this one
		before := strings.Count(logged.String(), "recovered a panic")
		p, err := NewPartitioned(byKey(manualWindows("TryReplenish", func(int) bool { return true }, func(int) { panic("boom") })),
			nil)
		require.NoError(t, err)
		mustAcquire(t, p, 1, 1)
		time.Sleep(time.Second)
		assert.Equal(t, before+1, strings.Count(logged.String(), "recovered a panic"))
		require.NoError(t, p.Close())
	})
}

// A custom limiter that does not answer, such as one that asks a dead server, is called once. Limiters of this package are looked
// after all the same.
func TestPartitioned_BlockedHooks(t *testing.T) {
	for _, hook := range []string{"TryReplenish", "IdleDuration"} {
		t.Run(hook, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var blocked atomic.Int64
				bad := manualWindows(hook, func(int) bool { return true }, func(int) {
					blocked.Add(1)
					<-release
				})
				p, err := NewPartitioned(byKey(func(key int) (Limiter, error) {
					if key < 3 {
						return bad(key)
					}
					return NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Second, ManualReplenishment: key%2 == 0})
				}), &PartitionedOptions{IdleTimeout: 2 * time.Second})
				require.NoError(t, err)
				for key := range 20 {
					mustAcquire(t, p, key, 1)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.EqualValues(t, 1, blocked.Load())
				assert.Equal(t, 3, p.Len())
				close(release)
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Zero(t, p.Len(), "it has answered")
				require.NoError(t, p.Close())
			})
		})
	}
}
