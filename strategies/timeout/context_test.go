package timeout_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

type key struct{}

// within runs f with the context of a timeout of a second.
func within(t *testing.T, parent context.Context, f func(ctx context.Context)) {
	t.Helper()
	require.NoError(t, make1(time.Second, nil).Execute(parent, func(ctx context.Context) error { f(ctx); return nil }))
}

func TestContext_Done(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		within(t, t.Context(), func(ctx context.Context) {
			time.Sleep(time.Second / 2) // asking late changes nothing
			assert.False(t, ctxerr.Closed(ctx.Done()))
			<-ctx.Done()
			assert.Equal(t, time.Second, time.Since(began))
			assert.Equal(t, context.DeadlineExceeded, ctx.Err())
		})
	})
}

func TestContext_Cause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		within(t, t.Context(), func(ctx context.Context) {
			value := context.WithValue(ctx, key{}, 1)
			child, cancel := context.WithCancel(value)
			defer cancel()
			grandchild, cancel2 := context.WithTimeout(child, time.Hour)
			defer cancel2()
			<-grandchild.Done()
			for _, c := range []context.Context{ctx, value, child, grandchild} {
				assert.Equal(t, context.DeadlineExceeded, c.Err())
				cause, ok := errors.AsType[*timeout.Error](context.Cause(c))
				require.True(t, ok)
				assert.Equal(t, "orders/Timeout", cause.Source.String())
				assert.NoError(t, cause.Err)
			}
		})
		within(t, t.Context(), func(ctx context.Context) { // without anybody having asked for Done
			time.Sleep(time.Second)
			_, ok := errors.AsType[*timeout.Error](context.Cause(ctx))
			assert.True(t, ok)
		})
	})
}

func TestContext_CancelledAfterTheExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ask := range []bool{false, true} {
			var kept context.Context
			within(t, t.Context(), func(ctx context.Context) {
				kept = ctx
				if ask {
					_ = ctx.Done()
				}
			})
			assert.Equal(t, context.Canceled, kept.Err())
			assert.True(t, ctxerr.Closed(kept.Done()))
			assert.Equal(t, context.Canceled, context.Cause(kept))
			child, cancel := context.WithCancel(kept)
			assert.Equal(t, context.Canceled, child.Err())
			cancel()
			time.Sleep(2 * time.Second)
			assert.Equal(t, context.Canceled, kept.Err())
		}
	})
}

func TestContext_AfterFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		within(t, t.Context(), func(ctx context.Context) {
			method, ok := ctx.(interface{ AfterFunc(func()) func() bool })
			require.True(t, ok)
			var ran []string
			method.AfterFunc(func() { ran = append(ran, "method") })
			stop := method.AfterFunc(func() { ran = append(ran, "stopped") })
			assert.True(t, stop())
			assert.False(t, stop())
			<-ctx.Done()
			synctest.Wait()
			context.AfterFunc(ctx, func() { ran = append(ran, "late") })
			synctest.Wait()
			assert.Equal(t, []string{"method", "late"}, ran)
		})
	})
}

// Children, also those of a value context in between, cost no goroutine.
func TestContext_ChildrenStartNoGoroutine(t *testing.T) {
	err := make1(time.Hour, nil).Execute(t.Context(), func(ctx context.Context) error {
		before := runtime.NumGoroutine()
		for range 50 {
			child, cancel := context.WithCancel(context.WithValue(ctx, key{}, 1))
			defer cancel()
			grandchild, cancel2 := context.WithTimeout(pipeline.WithOperation(child, "read"), time.Minute)
			defer cancel2()
			defer context.AfterFunc(grandchild, func() {})()
		}
		assert.Less(t, runtime.NumGoroutine(), before+10)
		return nil
	})
	require.NoError(t, err)
}

func TestContext_Concurrent(t *testing.T) {
	for round := range 200 {
		limit := time.Duration(round%5) * 50 * time.Microsecond
		parent, cancel := context.WithCancel(t.Context())
		var users sync.WaitGroup
		_ = make1(limit+time.Microsecond, nil).Execute(parent, func(ctx context.Context) error {
			for user := range 8 {
				users.Go(func() { use(t, ctx, user) })
			}
			if round%3 == 0 {
				cancel()
			}
			if round%2 == 0 {
				users.Wait()
			}
			return ctx.Err()
		})
		users.Wait()
		cancel()
	}
}

// use does everything that can be done with a context, until it has ended.
func use(t *testing.T, ctx context.Context, user int) {
	switch user % 4 {
	case 0:
		for ctx.Err() == nil {
			runtime.Gosched()
		}
	case 1:
		<-ctx.Done()
	case 2:
		child, cancel := context.WithCancel(context.WithValue(ctx, key{}, 1))
		defer cancel()
		<-child.Done()
		if child.Err() != ctx.Err() {
			t.Error("child", child.Err(), "parent", ctx.Err())
		}
	default:
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { close(ended) })
		defer stop()
		<-ended
	}
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == nil || !ctxerr.Closed(ctx.Done()) {
		t.Error("ended without saying so:", err, cause)
	}
	if again := ctx.Err(); again != err {
		t.Error("Err changed from", err, "to", again)
	}
}
