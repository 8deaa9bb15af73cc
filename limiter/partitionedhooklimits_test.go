package limiter

import (
	"context"
	"fmt"
	"log/slog"
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
		panicked := 0
		p, err := NewPartitioned(byKey(manualWindows("TryReplenish", func(int) bool { return true }, func(int) {
			panicked++
			panic("boom")
		})), &PartitionedOptions{IdleTimeout: time.Hour})
		require.NoError(t, err)
		for key := range 10 {
			mustAcquire(t, p, key, 1)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Greater(t, panicked, 5000)
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

// Limiters that do not answer, such as limiters that ask a dead server, are each called once, are logged, and do not
// hold up the others for long.
func TestPartitioned_BlockedHooks(t *testing.T) {
	const bad, good = 300, 20
	for _, hook := range []string{"TryReplenish", "IdleDuration"} {
		t.Run(hook, func(t *testing.T) {
			logged := logTo(t)
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				var blocked atomic.Int64
				p, err := NewPartitioned(byKey(manualWindows(hook, func(key int) bool { return key < bad }, func(int) {
					blocked.Add(1)
					<-release
				})), &PartitionedOptions{IdleTimeout: 2 * time.Second})
				require.NoError(t, err)
				for key := range bad {
					mustAcquire(t, p, key, 1)
				}
				granted := map[int]int{}
				time.Sleep(50 * time.Millisecond)
				for range 100 { // 10 s
					for key := bad; key < bad+good; key++ {
						lease, err := p.TryAcquire(t.Context(), key, 1)
						require.NoError(t, err)
						if lease.Acquired() {
							granted[key]++
						}
					}
					time.Sleep(100 * time.Millisecond)
				}
				for key := bad; key < bad+good; key++ {
					assert.GreaterOrEqual(t, granted[key], 85, "%d", key)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.EqualValues(t, bad, blocked.Load(), "one goroutine for each, however many beats there were")
				assert.Equal(t, bad, p.Len(), "the others are forgotten")
				assert.Equal(t, 1, strings.Count(logged.String(),
					`level=ERROR msg="weir: a call has not returned" hook="limiter: `+hook+`" within=100ms`))
				close(release)
				synctest.Wait()
				require.NoError(t, p.Close())
			})
		})
	}
}

// The caller of a new key does not wait for all the limiters that do not answer.
func TestPartitioned_EvictionWithBlockedHooks(t *testing.T) {
	_ = logTo(t)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		const keys = 500
		p, err := NewPartitioned(byKey(manualWindows("IdleDuration", func(int) bool { return true }, func(int) { <-release })),
			&PartitionedOptions{IdleTimeout: time.Hour, MaxPartitions: keys})
		require.NoError(t, err)
		for key := range keys {
			mustAcquire(t, p, key, 1)
		}
		begin := time.Now()
		lease, err := p.TryAcquire(t.Context(), keys, 1)
		require.NoError(t, err)
		assert.Equal(t, ReasonPartitionLimit, lease.Reason())
		assert.LessOrEqual(t, time.Since(begin), time.Second)
		close(release)
		synctest.Wait()
		require.NoError(t, p.Close())
	})
}

// A log handler may be the program's own as well.
func TestPartitioned_BlockedLogHandler(t *testing.T) {
	for _, method := range []string{"panic", "block"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				h := &blockedHandler{Handler: slog.DiscardHandler, release: release}
				handleLog(t, h)
				p, err := NewPartitioned(byKey(manualWindows("TryReplenish", func(key int) bool { return key < 5 }, func(int) {
					misbehaviors[method](release, nil)
				})), &PartitionedOptions{IdleTimeout: time.Second})
				require.NoError(t, err)
				for key := range 10 {
					mustAcquire(t, p, key, 1)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.EqualValues(t, 1, h.blocked.Load())
				assert.Equal(t, 5, p.Len(), "what could be replenished was, and is forgotten")
				close(release)
				synctest.Wait()
				require.NoError(t, p.Close())
			})
		})
	}
}

// blockedHandler is a log handler that does not return before release is closed.
type blockedHandler struct {
	slog.Handler
	release <-chan struct{}
	blocked atomic.Int64
}

func (h *blockedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *blockedHandler) Handle(_ context.Context, r slog.Record) error {
	h.blocked.Add(1)
	<-h.release
	return fmt.Errorf("lost: %s", r.Message)
}
