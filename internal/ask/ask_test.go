package ask_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/internal/ask"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within waits for the answer for a second.
func within[T any](q *ask.Question[T]) (T, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return q.Wait(ctx)
}

func TestAsker_FunctionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a ask.Asker[int]
		var calls atomic.Int32
		release := make(chan struct{})
		hangs := func() int { calls.Add(1); <-release; return 7 }
		began := time.Now()
		_, ok := within(a.Ask("test", hangs))
		assert.False(t, ok)
		assert.Equal(t, time.Second, time.Since(began))
		late := a.Ask("test", hangs)
		_, ok = within(late)
		assert.False(t, ok)
		assert.Equal(t, time.Second, time.Since(began), "a caller has waited for this call already")
		assert.EqualValues(t, 1, calls.Load(), "it is not called again before it has returned")

		close(release)
		synctest.Wait()
		answer, ok := within(late)
		assert.True(t, ok)
		assert.Equal(t, 7, answer)
		answer, ok = within(a.Ask("test", func() int { return 8 }))
		assert.True(t, ok)
		assert.Equal(t, 8, answer)
	})
}

func TestAsker_FunctionThatPanicsOrEndsItsGoroutine(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.DiscardHandler))
	var a ask.Asker[int]
	_, ok := within(a.Ask("test", func() int { panic("ouch") }))
	assert.False(t, ok)
	_, ok = within(a.Ask("test", func() int { runtime.Goexit(); return 1 }))
	assert.False(t, ok)
	answer, ok := within(a.Ask("test", func() int { return 2 }))
	assert.True(t, ok)
	assert.Equal(t, 2, answer)
}

func TestAsker_ConcurrentSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a ask.Asker[int]
		var running atomic.Int32
		for range 100 {
			go func() {
				answer, ok := within(a.Ask("test", func() int {
					defer running.Add(-1)
					return int(running.Add(1))
				}))
				assert.True(t, ok)
				assert.Equal(t, 1, answer, "one call at a time")
			}()
		}
	})
}
