package limiter

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// What a function of the program's may do instead of its work. Each returns once release is closed.
var misbehaviors = map[string]func(release <-chan struct{}, reenter func()){
	"panic":  func(<-chan struct{}, func()) { panic("boom") },
	"Goexit": func(<-chan struct{}, func()) { runtime.Goexit() },
	"block":  func(release <-chan struct{}, _ func()) { <-release },
	"reenter": func(_ <-chan struct{}, reenter func()) {
		reenter()
	},
}

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
			if does == "block" { // it blocks the housekeeping
				continue
			}
			t.Run(hook+"/"+does, func(t *testing.T) {
				logged := logTo(t)
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					var p *PartitionedLimiter[int, int]
					reenter := func() {
						_, _ = p.Statistics(1)
						_, _ = p.TryAcquire(context.Background(), -7, 1)
						assert.NoError(t, p.Reconfigure(PartitionedOptions{IdleTimeout: time.Second, MaxPartitions: 1000}))
					}
					const keys, bad = 60, 20
					isBad := map[int]bool{}
					p, err := NewPartitioned(byKey(func(key int) (Limiter, error) {
						w := weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Second}))
						h := hooked{FixedWindow: w, does: func() { f(release, reenter) }}
						if isBad[key] {
							h.bad = hook
						}
						return h, nil
					}), &PartitionedOptions{IdleTimeout: time.Second, MaxPartitions: 1000})
					require.NoError(t, err)
					for key := range keys {
						isBad[key] = key < bad
						_, err := p.TryAcquire(t.Context(), key, 1)
						require.NoError(t, err)
					}
					time.Sleep(25 * time.Second)
					synctest.Wait()
					for key, l := range p.All() {
						assert.True(t, isBad[key] || key == -7, "%d is still there: %v", key, l)
					}
					if does == "panic" {
						assert.Contains(t, logged.String(), `hook="limiter: IdleDuration or Close"`)
					}

					close(release)
					time.Sleep(10 * time.Second)
					synctest.Wait()
					if hook != "Close" && (does == "panic" || does == "Goexit") {
						assert.GreaterOrEqual(t, p.Len(), bad, "what is never full and idle is kept")
					} else {
						assert.LessOrEqual(t, p.Len(), 1, "what has answered is forgotten")
					}
					var wg sync.WaitGroup
					wg.Go(func() { // its Close may still panic
						defer func() { _ = recover() }()
						_ = p.Close()
					})
					wg.Wait()
				})
			})
		}
	}
}

// On the caller's goroutine a panic or Goexit is the caller's, and everything is as if the call had not been.
func TestPartitioned_BadHooksInCalls(t *testing.T) {
	for _, hook := range []string{"partition", "factory", "TryAcquire", "Statistics"} {
		for _, does := range []string{"panic", "Goexit"} {
			t.Run(hook+"/"+does, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broken := false
					at := func(here string) {
						if broken && here == hook {
							misbehaviors[does](nil, nil)
						}
					}
					p, err := NewPartitioned(func(key int) Partition[int] {
						at("partition")
						return Partition[int]{Key: key, New: func(int) (Limiter, error) {
							at("factory")
							w := weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Second}))
							return hooked{FixedWindow: w, bad: hook, does: func() { at(hook) }}, nil
						}}
					}, &PartitionedOptions{MaxPartitions: 1, IdleTimeout: time.Second})
					require.NoError(t, err)
					if hook == "Statistics" {
						mustAcquire(t, p, 1, 1)
					}
					broken = true
					returned := false
					var value any
					var wg sync.WaitGroup
					wg.Go(func() {
						defer func() { value = recover() }()
						if hook == "Statistics" {
							_, _ = p.Statistics(1)
						} else {
							_, _ = p.TryAcquire(context.Background(), 1, 1)
						}
						returned = true
					})
					wg.Wait()
					assert.False(t, returned)
					if does == "panic" {
						assert.Equal(t, "boom", value)
					}
					broken = false
					time.Sleep(time.Minute)
					synctest.Wait()
					assert.Zero(t, p.Len(), "no pin is left behind")
					mustAcquire(t, p, 2, 1)
					require.NoError(t, p.Close())
				})
			})
		}
	}
}

// A limiter whose Close panics does not keep the others from being closed.
func TestPartitioned_CloseDespitePanic(t *testing.T) {
	for _, does := range []string{"panic", "Goexit"} {
		t.Run(does, func(t *testing.T) {
			closed := 0
			p, err := NewPartitioned(byKey(closes(func(key int) {
				if closed++; key%100 == 7 {
					misbehaviors[does](nil, nil)
				}
			})), nil)
			require.NoError(t, err)
			for key := range 1000 {
				mustAcquire(t, p, key, 1)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { _ = recover() }()
				_ = p.Close()
				t.Error("the caller does not learn of it")
			})
			wg.Wait()
			assert.Equal(t, 1000, closed)
			assert.Zero(t, p.Len())
		})
	}
}

// What a limiter does when a new key that needs room asks it is up to the caller of that key. The next new key asks another one.
func TestPartitioned_EvictionWithBadHooks(t *testing.T) {
	for _, hook := range []string{"IdleDuration", "Close"} {
		for does, f := range misbehaviors {
			if does == "block" || does == "reenter" && hook == "IdleDuration" {
				continue
			}
			t.Run(hook+"/"+does, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					var p *PartitionedLimiter[int, int]
					p, err := NewPartitioned(byKey(func(key int) (Limiter, error) {
						h := hooked{
							FixedWindow: weir.Must(NewFixedWindow(FixedWindowOptions{PermitLimit: 1, Window: time.Second})),
							does:        func() { f(release, func() { _, _ = p.TryAcquire(context.Background(), -1, 1) }) },
						}
						if key < 3 {
							h.bad = hook
						}
						return h, nil
					}), &PartitionedOptions{MaxPartitions: 4, IdleTimeout: time.Hour})
					require.NoError(t, err)
					for key := range 4 {
						mustAcquire(t, p, key, 1)
					}
					time.Sleep(2 * time.Second)
					for key := 10; key < 14; key++ {
						var wg sync.WaitGroup
						wg.Go(func() {
							defer func() { _ = recover() }()
							_, _ = p.TryAcquire(context.Background(), key, 1)
						})
						wg.Wait()
						assert.LessOrEqual(t, p.Len(), 4)
					}
					there := 0
					for range p.All() {
						there++
					}
					assert.Equal(t, there, p.Len())
				})
			})
		}
	}
}

// A partitioned limiter of a package variable may be used in several bubbles and outside of them. A timer that was set in
// another bubble is noticed when it is late.
func TestPartitioned_OutlivesBubbles(t *testing.T) {
	window := FixedWindowFactory[int](FixedWindowOptions{PermitLimit: 1, Window: time.Second})
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
