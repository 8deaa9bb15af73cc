package limiter

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"maps"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/recovered"
)

// What a function of the program may do instead of its work.
var misbehaviors = map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit}

// hooked is a limiter of the user's whose methods misbehave.
type hooked struct {
	*FixedWindow
	bad  string // the method
	does func()
}

func (h hooked) at(method string) {
	if h.bad == method {
		h.does()
	}
}

func (h hooked) IdleDuration() (time.Duration, bool) {
	h.at("IdleDuration")
	return h.FixedWindow.IdleDuration()
}

func (h hooked) Close() error {
	h.at("Close")
	return h.FixedWindow.Close()
}

func (h hooked) Statistics() Statistics {
	h.at("Statistics")
	return h.FixedWindow.Statistics()
}

func (h hooked) TryAcquire(ctx context.Context, n int) (Lease, error) {
	h.at("TryAcquire")
	return h.FixedWindow.TryAcquire(ctx, n)
}

// logTo sends what is logged with slog.Default to the returned buffer until the test ends.
func logTo(t *testing.T) *lockedBuffer {
	b := &lockedBuffer{}
	handleLog(t, slog.NewTextHandler(b, nil))
	return b
}

// handleLog has h handle what is logged with slog.Default until the test ends.
func handleLog(t *testing.T, h slog.Handler) {
	was, out, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(h))
	t.Cleanup(func() {
		slog.SetDefault(was)
		log.SetOutput(out) // SetDefault leads package log to h
		log.SetFlags(flags)
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Housekeeping looks after the other partitions, whatever the limiters of some do when they are asked.
func TestPartitioned_HousekeepingWithBadHooks(t *testing.T) {
	for _, hook := range []string{"IdleDuration", "Close"} {
		for does, f := range misbehaviors {
			t.Run(hook+"/"+does, func(t *testing.T) {
				logged := logTo(t)
				synctest.Test(t, func(t *testing.T) {
					const keys, bad = 60, 20
					p := badHooks(t, bad, hook, f, PartitionedOptions{IdleTimeout: time.Second})
					for key := range keys {
						mustAcquire(t, p, key, 1)
					}
					time.Sleep(10 * time.Second)
					if hook == "IdleDuration" {
						assert.Equal(t, bad, p.Len(), "what never says that it is idle is kept")
					} else {
						assert.Zero(t, p.Len())
					}
					if does == "panic" {
						assert.Contains(t, logged.String(), `hook="limiter: IdleDuration or Close"`)
					}
				})
			})
		}
	}
}

// What a limiter does when a new key that needs room asks it is up to the caller of that key. The next new key asks another one.
func TestPartitioned_EvictionWithBadHooks(t *testing.T) {
	for _, hook := range []string{"IdleDuration", "Close"} {
		for does, f := range misbehaviors {
			t.Run(hook+"/"+does, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := badHooks(t, 3, hook, f, PartitionedOptions{MaxPartitions: 4, IdleTimeout: time.Hour})
					for key := range 4 {
						mustAcquire(t, p, key, 1)
					}
					time.Sleep(2 * time.Second)
					for key := 10; key < 14; key++ {
						away(func() { _, _ = p.TryAcquire(context.Background(), key, 1) })
						assert.LessOrEqual(t, p.Len(), 4)
					}
					assert.Len(t, maps.Collect(p.All()), p.Len())
				})
			})
		}
	}
}

// badHooks returns a partitioned limiter of which the keys below bad have a limiter whose hook misbehaves.
func badHooks(t *testing.T, bad int, hook string, does func(), o PartitionedOptions) *PartitionedLimiter[int, int] {
	p, err := NewPartitioned(byKey(func(key int) (Limiter, error) {
		h := hooked{FixedWindow: weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Second})), does: does}
		if key < bad {
			h.bad = hook
		}
		return h, nil
	}), &o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// away calls f on a goroutine that f can end, and reports whether f returned.
func away(f func()) (returned bool) {
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { _ = recover() }()
		f()
		returned = true
	})
	wg.Wait()
	return returned
}

// After a panic or Goexit in a call, no pin is left behind.
func TestPartitioned_BadHooksInCalls(t *testing.T) {
	for does, f := range misbehaviors {
		synctest.Test(t, func(t *testing.T) {
			for hook, call := range map[string]func(p *PartitionedLimiter[int, int]){
				"TryAcquire": func(p *PartitionedLimiter[int, int]) { _, _ = p.TryAcquire(context.Background(), 1, 1) },
				"Statistics": func(p *PartitionedLimiter[int, int]) { _, _ = p.Statistics(1) },
			} {
				broken := false
				p := badHooks(t, 2, hook, func() {
					if broken {
						f()
					}
				}, PartitionedOptions{MaxPartitions: 1, IdleTimeout: time.Second})
				mustAcquire(t, p, 1, 1)
				broken = true
				assert.False(t, away(func() { call(p) }), "%s %s", hook, does)
				time.Sleep(time.Minute)
				assert.Zero(t, p.Len())
			}
		})
	}
}

// A limiter whose Close panics does not keep the others from being closed.
func TestPartitioned_CloseDespitePanic(t *testing.T) {
	for does, f := range misbehaviors {
		closed := 0
		p, err := NewPartitioned(byKey(closes(func(key int) {
			if closed++; key%100 == 7 {
				f()
			}
		})), nil)
		require.NoError(t, err)
		for key := range 1000 {
			mustAcquire(t, p, key, 1)
		}
		_, ok := errors.AsType[*recovered.PanicError](p.Close())
		assert.True(t, ok, does)
		assert.Equal(t, 1000, closed)
		assert.Zero(t, p.Len())
	}
}

// A partitioned limiter of a package variable may be used in several bubbles and outside of them. A timer that was set in
// another bubble is noticed when it is late.
func TestPartitioned_OutlivesBubbles(t *testing.T) {
	window := FactoryFor[int](FixedWindowOptions{PermitLimit: 1, Window: time.Second})
	for _, before := range []bool{false, true} {
		p, err := NewPartitioned(byKey(window), &PartitionedOptions{IdleTimeout: time.Minute})
		require.NoError(t, err)
		use := func(key int) { _, _ = p.TryAcquire(context.Background(), key, 1) }
		if before {
			use(-1)
		}
		synctest.Test(t, func(*testing.T) {
			use(1)
			time.Sleep(time.Hour)
			use(1)
		})
		synctest.Test(t, func(t *testing.T) {
			for key := range 120 {
				use(2 + key)
				time.Sleep(time.Second)
			}
			assert.Less(t, p.Len(), 90, "housekeeping goes on in the next bubble")
		})
		use(3)
		assert.GreaterOrEqual(t, p.keys.sweep.Load().set, int64(0), "housekeeping goes by the clock outside again")
		synctest.Test(t, func(*testing.T) { use(4) })
		require.NoError(t, p.Close(), "outside of the bubble that set the timer")
	}
}
