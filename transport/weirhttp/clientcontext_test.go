package weirhttp

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

var errWhy = errors.New("why")

// newTestContext returns the context of an attempt whose strategies have a deadline.
func newTestContext(ctx context.Context) (l *attemptContext, own context.Context, cancelStrategies context.CancelFunc) {
	x := &exchange{Context: ctx, caller: ctx}
	strategies, cancel := context.WithTimeoutCause(x, time.Second, errWhy)
	a := &attempt{exchange: x}
	own = a.newContext(strategies)
	return a.ctx, own, cancel
}

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

func TestAttemptContext_EndsWithTheStrategies(t *testing.T) {
	for _, armed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, own, cancel := newTestContext(t.Context())
			defer cancel()
			defer l.end()
			if armed {
				assert.False(t, isDone(own))
			}
			assert.NoError(t, own.Err())
			time.Sleep(time.Second)
			synctest.Wait()
			assert.ErrorIs(t, own.Err(), context.DeadlineExceeded)
			assert.True(t, isDone(own), "Done is closed once Err is not nil")
			assert.Equal(t, errWhy, context.Cause(own))
			assert.Equal(t, errWhy, l.detach())
			l.end()
			assert.ErrorIs(t, own.Err(), context.DeadlineExceeded)
		})
	}
}

func TestAttemptContext_Detached(t *testing.T) {
	for _, armed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			caller, leave := context.WithCancelCause(t.Context())
			l, own, cancel := newTestContext(caller)
			if armed {
				assert.False(t, isDone(own))
			}
			_, ok := own.Deadline()
			assert.True(t, ok)
			assert.NoError(t, l.detach())
			cancel()
			synctest.Wait()
			_, ok = own.Deadline()
			assert.False(t, ok)
			assert.NoError(t, own.Err())
			assert.NoError(t, context.Cause(own))
			assert.False(t, isDone(own))
			child, cancelChild := context.WithCancel(own)
			defer cancelChild()
			leave(errWhy)
			assert.True(t, isDone(child), "without a goroutine in between")
			assert.ErrorIs(t, own.Err(), context.Canceled)
			assert.Equal(t, errWhy, context.Cause(own))
			l.end()
		})
	}
}

func TestAttemptContext_Ended(t *testing.T) {
	for _, armed := range []bool{false, true} {
		l, own, cancel := newTestContext(t.Context())
		if armed {
			assert.False(t, isDone(own))
		}
		l.end()
		l.end()
		cancel()
		assert.Equal(t, context.Canceled, own.Err())
		assert.True(t, isDone(own))
	}
}

// lateContext panics once late is set.
type lateContext struct {
	context.Context
	late atomic.Bool
}

func (c *lateContext) Deadline() (time.Time, bool) {
	if c.late.Load() {
		panic("late")
	}
	return c.Context.Deadline()
}

// The goroutine that waits for the channel does not call the caller's context: a panic there would end the process.
func TestWithCancelChannel_ContextThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := &lateContext{Context: t.Context()}
		ch := make(chan struct{})
		ctx, stop := withCancelChannel(parent, ch)
		defer stop(nil)
		parent.late.Store(true)
		close(ch)
		<-ctx.Done()
		assert.Equal(t, errCancelled, context.Cause(ctx))
	})
}

func TestAttemptContext_ConcurrentSafe(t *testing.T) {
	for range 300 {
		caller, leave := context.WithCancel(t.Context())
		l, own, cancel := newTestContext(caller)
		var wg sync.WaitGroup
		for _, f := range []func(){
			leave,
			cancel,
			func() { _ = l.detach(); l.end() },
			func() { <-own.Done(); _ = own.Err() },
			func() {
				child, cancelChild := context.WithCancelCause(own)
				<-child.Done()
				assert.Error(t, own.Err())
				cancelChild(nil)
			},
			func() {
				if own.Err() != nil {
					assert.True(t, isDone(own))
				}
				_, _ = own.Deadline()
				_ = own.Value(exchangeKey{})
			},
		} {
			wg.Go(f)
		}
		wg.Wait()
	}
}
