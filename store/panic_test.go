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
	"github.com/weir-go/weir/store/backend"
)

// A backend that panics or ends the goroutine while it listens, loads or is probed ends nothing else.
func TestBackend_PanicsInTheBackground(t *testing.T) {
	for _, rude := range []func(){func() { panic("out of order") }, runtime.Goexit} {
		inWorld(t, func(t *testing.T, w *world) {
			s := w.instance(store.Options{})
			l := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
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

// The caller's context is not called on goroutines of the Store.
func TestAcquire_ContextThatPanicsLater(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.bucket(1, 1, time.Second, 10, nil)
		w.granted(l, 1)
		ctx := &rudeAtCall{Context: t.Context(), method: "Err", rude: func() { panic("out of order") }}
		served := false
		go func() {
			lease, err := l.Acquire(ctx, 1)
			served = err == nil && lease.Acquired()
		}()
		w.pass(10 * time.Millisecond)
		ctx.call = ctx.calls.Load() + 1
		w.pass(5 * time.Second)
		require.True(t, served)
	})
}

// If a method of the caller's context panics or ends the goroutine, at any call, no permit is lost.
func TestAcquire_ContextThatPanicsAtACall(t *testing.T) {
	makers := map[string]func(w *world, s *store.Store) limiter.Limiter{
		"leases": func(w *world, s *store.Store) limiter.Limiter {
			return must(s.Concurrency("it", limiter.ConcurrencyOptions{PermitLimit: 2, QueueLimit: 5}, nil))(w.T)
		},
	}
	for name, how := range map[string]*store.LimiterOptions{"usual": nil, "blocks": {Block: 2}} {
		makers[name] = func(w *world, s *store.Store) limiter.Limiter {
			return must(s.TokenBucket("it", bucketOf(2, 1, time.Hour, 5), how))(w.T)
		}
	}
	attempt := func(t *testing.T, make func(*world, *store.Store) limiter.Limiter, method string, rude func(), call int32) {
		inWorld(t, func(t *testing.T, w *world) {
			l := make(w, newStore(t, w.Memory, store.Options{NoListen: true}))
			w.granted(l, 0)
			w.Delay(10 * time.Millisecond)
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			var lease limiter.Lease
			go func() {
				defer func() { _ = recover() }()
				lease, _ = l.Acquire(&rudeAtCall{Context: parent, method: method, rude: rude, call: call}, 1)
			}()
			w.pass(time.Second)
			if !lease.Acquired() {
				cancel()
				w.pass(2 * time.Second) // what was borrowed is given back
				w.Delay(0)
				require.True(t, w.try(l, 2).Acquired(), "%s at call %d", method, call)
			}
		})
	}
	for name, make := range makers {
		for how, rude := range map[string]func(){"panic": func() { panic("out of order") }, "Goexit": runtime.Goexit} {
			t.Run(name+" "+how, func(t *testing.T) {
				for _, method := range []string{"Done", "Err", "Deadline", "Value"} {
					for call := range int32(6) {
						attempt(t, make, method, rude, call+1)
					}
				}
			})
		}
	}
}

type rudeAtCall struct {
	context.Context
	method string
	rude   func()
	call   int32
	calls  atomic.Int32
}

func (c *rudeAtCall) called(method string) {
	if c.method == method && c.calls.Add(1) == c.call {
		c.rude()
	}
}

func (c *rudeAtCall) Done() <-chan struct{} {
	c.called("Done")
	return c.Context.Done()
}

func (c *rudeAtCall) Err() error {
	c.called("Err")
	return c.Context.Err()
}

func (c *rudeAtCall) Deadline() (time.Time, bool) {
	c.called("Deadline")
	return c.Context.Deadline()
}

func (c *rudeAtCall) Value(key any) any {
	c.called("Value")
	return c.Context.Value(key)
}

// A backend that panics or ends the goroutine counts as one that has not answered.
func TestStore_BackendMisbehaves(t *testing.T) {
	for name, misbehave := range map[string]func(){"panics": func() { panic("backend") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				s := w.instance(store.Options{FailureThreshold: 1000})
				bucket := must(s.TokenBucket("bucket", bucketOf(10, 1, time.Hour, 0), nil))(t)
				seats := must(s.Concurrency("seats", limiter.ConcurrencyOptions{PermitLimit: 10}, nil))(t)
				w.granted(bucket, 1)
				held := w.granted(seats, 1)
				w.hook(func(string) error { misbehave(); return nil }, nil)
				require.Equal(t, limiter.ReasonUnavailable, w.rejected(bucket, 1).Reason())
				require.Equal(t, limiter.ReasonUnavailable, w.rejected(seats, 1).Reason())
				held.Release()
				w.pass(time.Second)
				w.hook(nil, nil)
				w.granted(bucket, 1)
				w.granted(seats, 1)
			})
		})
	}
}

// A backend that breaks its contract delays the calls that it answers so, and no later ones.
func TestStore_BackendBreaksItsContract(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		bucket := w.bucket(1000, 1, time.Hour, 0, nil)
		var asked []*backend.Batch
		w.see = func(all []*backend.Batch) { asked = all }
		w.hook(nil, func(method string) error {
			if method == "Decide" {
				asked[0].Granted = nil
			}
			return nil
		})
		for range 20 { // more than go together
			require.Equal(t, limiter.ReasonUnavailable, w.rejected(bucket, 1).Reason())
		}
		w.hook(nil, nil)
		w.granted(bucket, 1)
	})
}
