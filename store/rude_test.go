package store_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
)

// A backend that panics or ends our goroutines where it listens, loads and is looked for ends nothing else.
func TestBackend_PanicsOnOurGoroutines(t *testing.T) {
	for _, rude := range []func(){func() { panic("out of order") }, runtime.Goexit} {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.instance(store.Options{})
			l := must2(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
			w.hook(func(method string) error {
				if method == "Listen" || method == "Load" {
					rude()
				}
				return nil
			}, nil)
			for range 4 {
				w.rejected(l, 1)
			}
			require.Error(t, s.Health().Err)
			w.hook(func(string) error { rude(); return nil }, nil)
			w.pass(10 * time.Second)
			require.Error(t, s.Health().Err, "the probe has not come back")
			w.hook(nil, nil)
			w.pass(40 * time.Second)
			require.NoError(t, s.Health().Err)
			w.granted(l, 10)
			require.True(t, s.Health().Listening)
		})
	}
}

// A backend that is asked without another goroutine panics, or ends the goroutine, while it is asked for a queue: the
// queue goes on.
func TestBackend_PanicsWhereAQueueIsServed(t *testing.T) {
	for name, rude := range map[string]func(){"panic": func() { panic("out of order") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := w.bucket(1, 1, time.Second, 10, &store.LimiterOptions{NoCoalescing: true})
				w.granted(l, 1)
				waiting := w.acquire(l, 1)
				var calls atomic.Int32
				w.hook(func(method string) error {
					if method == "Decide" && calls.Add(1) <= 2 {
						rude()
					}
					return nil
				}, nil)
				w.pass(time.Minute)
				require.GreaterOrEqual(t, calls.Load(), int32(2))
				require.True(t, waiting.done.Load())
				w.hook(nil, nil)
				w.pass(time.Minute)
				again := w.acquire(l, 1)
				w.pass(time.Minute)
				w.served(again)
			})
		})
	}
}

// A backend that panics is one that has failed, also on the goroutine of the caller.
func TestBackend_PanicsOnTheCallersGoroutine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(1, 1, time.Second, 10, &store.LimiterOptions{NoCoalescing: true})
		w.granted(l, 1)
		w.hook(func(string) error { panic("out of order") }, nil)
		require.Equal(t, limiter.ReasonUnavailable, w.rejected(l, 1).Reason())
	})
}

// The context of a caller is the program's, too: it is not called on our goroutines.
func TestAcquire_ContextThatPanicsLater(t *testing.T) {
	for name, make := range map[string]func(w *world) limiter.Limiter{
		"bucket": func(w *world) limiter.Limiter { return w.bucket(1, 1, time.Second, 10, nil) },
		"one by one": func(w *world) limiter.Limiter {
			return w.bucket(1, 1, time.Second, 10, &store.LimiterOptions{NoCoalescing: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				l := make(w)
				w.granted(l, 1)
				ctx := &rudeContext{Context: t.Context()}
				served := false
				go func() {
					lease, err := l.Acquire(ctx, 1)
					served = err == nil && lease.Acquired()
				}()
				w.pass(10 * time.Millisecond)
				ctx.rude.Store(true)
				w.pass(5 * time.Second)
				require.True(t, served)
			})
		})
	}
}

type rudeContext struct {
	context.Context
	rude atomic.Bool
}

func (c *rudeContext) Err() error {
	if c.rude.Load() {
		panic("out of order")
	}
	return c.Context.Err()
}
