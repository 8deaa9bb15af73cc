package timeout_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

func TestModes_Context(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		began := time.Now()
		parent := context.WithValue(t.Context(), key{}, "value")
		err := m.pipeline(t, time.Second, nil).Execute(parent, func(ctx context.Context) error {
			m.check(t, ctx)
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, began.Add(time.Second), deadline)
			assert.Equal(t, "value", ctx.Value(key{}))
			time.Sleep(time.Second - 1)
			assert.NoError(t, ctx.Err())
			assert.NoError(t, context.Cause(ctx))
			time.Sleep(time.Nanosecond)
			synctest.Wait() // for a timer that fires at the same moment
			assert.Equal(t, context.DeadlineExceeded, ctx.Err())
			assert.True(t, isClosed(ctx.Done()))
			assert.IsType(t, (*timeout.Error)(nil), context.Cause(ctx))
			assert.Equal(t, "value", ctx.Value(key{}))
			detached, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer stop()
			assert.NoError(t, detached.Err())
			assert.Equal(t, "value", detached.Value(key{}))
			return nil
		})
		assert.NoError(t, err)
	})
}

func TestModes_CauseOfChildren(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		parent, cancelParent := context.WithCancelCause(t.Context())
		for _, ends := range []string{"our deadline", "the parent", "the strategy returns"} {
			var all []context.Context
			var after atomic.Int32
			_ = m.pipeline(t, time.Second, nil).Execute(parent, func(ctx context.Context) error {
				m.check(t, ctx)
				value := context.WithValue(ctx, key{}, 1)
				child, cancel := context.WithCancel(value)
				t.Cleanup(cancel)
				grandchild, cancel2 := context.WithTimeout(pipeline.WithOperation(child, "read"), time.Hour)
				t.Cleanup(cancel2)
				all = []context.Context{ctx, value, child, grandchild}
				for _, c := range all {
					context.AfterFunc(c, func() { after.Add(1) })
				}
				switch ends {
				case "our deadline":
					<-grandchild.Done()
				case "the parent":
					cancelParent(errBoom)
				}
				return nil
			})
			synctest.Wait()
			assert.EqualValues(t, len(all), after.Load(), ends)
			for _, c := range all {
				require.True(t, isClosed(c.Done()), ends)
				switch ends {
				case "our deadline":
					assert.Equal(t, context.DeadlineExceeded, c.Err())
					assert.IsType(t, (*timeout.Error)(nil), context.Cause(c))
				case "the parent":
					assert.Equal(t, context.Canceled, c.Err())
					assert.Equal(t, errBoom, context.Cause(c))
				default:
					assert.Equal(t, context.Canceled, c.Err())
				}
			}
			parent, cancelParent = context.WithCancelCause(t.Context())
		}
		cancelParent(nil)
	})
}

func TestModes_PanicAndGoexit(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		p := m.pipeline(t, time.Hour, nil)
		for name, leave := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
			for _, ask := range []bool{false, true} {
				var kept context.Context
				var recovered any
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { recovered = recover() }()
					_ = p.Execute(t.Context(), func(ctx context.Context) error {
						m.check(t, ctx)
						if kept = ctx; ask {
							_ = ctx.Done()
						}
						leave()
						return nil
					})
					t.Error("it came back")
				})
				wg.Wait()
				assert.True(t, isClosed(kept.Done()), name)
				assert.Equal(t, context.Canceled, kept.Err(), name)
				assert.Equal(t, name == "panic", recovered == "boom")
				if m == lazily && ask { // it learns; unlearn, for the next
					p = m.pipeline(t, time.Hour, nil)
				}
			}
		}
	})
}

// Callers that ask and callers that do not share one strategy, so that both
// modes run at the same time and the predictions change all the time.
func TestModes_Concurrent(t *testing.T) {
	p := make1(100*time.Microsecond, nil)
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for round := range 100 {
				err := p.Execute(t.Context(), func(ctx context.Context) error {
					if (caller+round/20)%2 == 0 {
						return untilDone(ctx)
					}
					for ctx.Err() == nil {
						runtime.Gosched()
					}
					return ctx.Err()
				})
				if _, ok := errors.AsType[*timeout.Error](err); !ok {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}
