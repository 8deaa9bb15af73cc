package weirfailsafe_test

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/fallback"
	"github.com/failsafe-go/failsafe-go/hedgepolicy"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/weirfailsafe"
)

// leave runs a callback that does not return, and tells what the caller's
// goroutine saw: a panic's value, or that it was left.
func leave(p *pipeline.Pipeline, callback func(context.Context)) (recovered any, left bool) {
	var wg sync.WaitGroup
	wg.Go(func() {
		left = true
		defer func() { recovered = recover() }()
		_ = p.Execute(context.Background(), func(ctx context.Context) error { callback(ctx); return nil })
		left = false
	})
	wg.Wait()
	return recovered, left
}

func panicking(context.Context) { panic(http.ErrAbortHandler) }
func exiting(context.Context)   { runtime.Goexit() }

func TestStrategy_PanicReleasesPermits(t *testing.T) {
	full := bulkhead.New[any](1)
	p := with(weirfailsafe.New(nil, full), nil)
	for range 3 {
		recovered, left := leave(p, panicking)
		assert.True(t, left)
		assert.Same(t, http.ErrAbortHandler, recovered, "the very value")
		recovered, left = leave(p, exiting)
		assert.True(t, left)
		assert.Nil(t, recovered)
		require.True(t, full.TryAcquirePermit(), "it came back")
		full.ReleasePermit()
	}
}

func TestStrategy_PanicInAHalfOpenCircuit(t *testing.T) {
	for name, callback := range map[string]func(context.Context){"panic": panicking, "goexit": exiting} {
		breaker := circuitbreaker.NewBuilder[any]().WithDelay(time.Minute).Build()
		breaker.HalfOpen()
		leave(with(weirfailsafe.New(nil, breaker), nil), callback)
		assert.Equal(t, circuitbreaker.OpenState, breaker.State(), name)

		// Which errors are failures is the policy's matter: it has to know of ErrAborted.
		choosy := circuitbreaker.NewBuilder[any]().HandleErrors(errBoom, pipeline.ErrAborted).Build()
		choosy.HalfOpen()
		leave(with(weirfailsafe.New(nil, choosy), nil), callback)
		assert.Equal(t, circuitbreaker.OpenState, choosy.State(), name)
	}
}

func TestStrategy_PanicIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, callback := range []func(context.Context){panicking, exiting} {
			r, calls := new(recorder), 0
			p := with(weirfailsafe.New(nil,
				fallback.NewWithFunc(func(failsafe.Execution[any]) (any, error) { t.Error("it fell back"); return 0, nil }),
				retrypolicy.NewBuilder[any]().WithDelay(time.Hour).Build(),
			), r)
			_, left := leave(p, func(ctx context.Context) { calls++; callback(ctx) })
			assert.True(t, left)
			assert.Equal(t, 1, calls)
			assert.Zero(t, time.Since(began), "it does not wait, either")
			require.Len(t, r.events, 1)
			assert.Equal(t, weirfailsafe.EventPanic, r.events[0].Name)
			assert.Equal(t, pipeline.SeverityCritical, r.events[0].Severity)
			failure, ok := r.events[0].Err.(*pipeline.PanicError)
			require.True(t, ok)
			require.ErrorIs(t, failure, pipeline.ErrAborted)
			assert.Contains(t, string(failure.Stack), "panic_test.go", "it says where")
			if failure.Value == nil {
				assert.EqualError(t, failure, "it left its goroutine")
			} else {
				assert.EqualError(t, failure, "panic: net/http: abort Handler")
				assert.ErrorIs(t, failure, http.ErrAbortHandler)
			}
		}
	})
}

// An attempt that the executor no longer waits for cannot panic in the caller.
func TestStrategy_PanicOfALoser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan error, 1)
		p := weir.Must(pipeline.Config{
			Strategies: []pipeline.Strategy{weirfailsafe.New[any](nil, hedgepolicy.NewWithDelay[any](time.Second))},
			Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
				if e.Name == weirfailsafe.EventPanic {
					told <- e.Err
				}
			}),
		}.Build())
		var calls atomic.Int64
		require.NoError(t, p.Execute(t.Context(), func(context.Context) error {
			if calls.Add(1) == 1 {
				time.Sleep(time.Minute)
				panic("late")
			}
			return nil
		}))
		assert.EqualError(t, <-told, "panic: late")
	})
}

// The report is made in a goroutine of the package, where the caller cannot recover.
func TestStrategy_ListenerPanics(t *testing.T) {
	told := 0
	p := weir.Must(pipeline.Config{
		Strategies: []pipeline.Strategy{weirfailsafe.New(nil, retrypolicy.NewBuilder[any]().Build())},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			if e.Name == weirfailsafe.EventPanic {
				told++
				panic("the listener")
			}
		}),
	}.Build())
	assert.PanicsWithValue(t, "oh", func() {
		_ = p.Execute(t.Context(), func(context.Context) error { panic("oh") })
	})
	assert.Equal(t, 1, told, "it was not tried again")
}
