package timeout_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/timeout"
)

var errBoom = errors.New("boom")

func make1(d time.Duration, o *timeout.Options) *pipeline.Pipeline {
	return weir.Must(pipeline.New("orders", timeout.New(d, o)))
}

// untilDone is a callback that does nothing but wait for the end of its context.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestStrategy_TimedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []pipeline.Event
		var order []string
		strategy := timeout.New(time.Second, &timeout.Options{OnTimeout: func(ctx context.Context, e pipeline.Event) {
			order = append(order, fmt.Sprint("OnTimeout ", e.Source, " ", ctx.Err()))
		}})
		p := weir.Must(pipeline.Config{Name: "orders", Strategies: []pipeline.Strategy{strategy},
			Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
				if e.Name == timeout.EventTimeout {
					events, order = append(events, e), append(order, e.Name)
				}
			})}.Build())
		began := time.Now()
		value, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (string, error) {
			return "half", untilDone(ctx)
		})
		assert.Equal(t, time.Second, time.Since(began))
		assert.Equal(t, "half", value)
		assert.EqualError(t, err, "timeout: orders/Timeout: no result within 1s")
		assert.ErrorIs(t, err, pipeline.ErrRejected)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, context.Canceled)
		failure, ok := errors.AsType[*timeout.Error](err)
		require.True(t, ok)
		assert.True(t, failure.Timeout())
		assert.Equal(t, time.Second, failure.After)
		assert.Equal(t, pipeline.Source{Pipeline: "orders", Strategy: "Timeout"}, failure.Source)
		assert.Equal(t, context.DeadlineExceeded, failure.Err)

		assert.Equal(t, []string{"OnTimeout", "OnTimeout orders/Timeout <nil>"}, order)
		require.Len(t, events, 1)
		assert.Equal(t, pipeline.SeverityError, events[0].Severity)
		assert.Equal(t, err, events[0].Err)
	})
}

// A failure after the limit is a timeout, whatever its error is. A late success is one.
func TestStrategy_LateOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []error{nil, errBoom, context.Canceled, &circuitbreaker.OpenError{}} {
			err := make1(time.Second, nil).Execute(t.Context(), func(context.Context) error {
				time.Sleep(2 * time.Second) // without a look at Done
				return late
			})
			failure, timedOut := errors.AsType[*timeout.Error](err)
			require.Equal(t, late != nil, timedOut)
			if timedOut {
				assert.Equal(t, late, failure.Err)
				assert.Equal(t, pipeline.NotCalled(late), pipeline.NotCalled(err))
			}
		}
	})
}

func TestStrategy_ErrorBeforeTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failure := range []error{context.Canceled, context.DeadlineExceeded, errBoom} {
			err := make1(time.Second, nil).Execute(t.Context(), func(context.Context) error { return failure })
			assert.Equal(t, failure, err)
		}
	})
}

func TestStrategy_CallersContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := make1(time.Minute, nil)
		cause := errors.New("the user went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		err := p.Execute(ctx, func(ctx context.Context) error {
			err := untilDone(ctx)
			assert.Equal(t, cause, context.Cause(ctx))
			return err
		})
		assert.Equal(t, context.Canceled, err)

		early, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		err = p.Execute(early, func(ctx context.Context) error {
			assert.Same(t, early, ctx, "with nothing to add, there is no context of ours")
			return untilDone(ctx)
		})
		assert.Equal(t, context.DeadlineExceeded, err)

		// Our deadline passes, and the caller gives up before the callback returns.
		ctx, cancel2 := context.WithCancel(t.Context())
		err = make1(time.Second, nil).Execute(ctx, func(ctx context.Context) error {
			err := untilDone(ctx)
			cancel2()
			return err
		})
		assert.Equal(t, context.DeadlineExceeded, err)
	})
}

func TestStrategy_Nested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, outer := timeout.New(time.Second, &timeout.Options{Name: "inner"}), timeout.New(time.Minute, &timeout.Options{Name: "outer"})
		for _, order := range [][]pipeline.Strategy{{outer, inner}, {inner, outer}} {
			p := weir.Must(pipeline.New("orders", order...))
			err := p.Execute(t.Context(), untilDone)
			failure, ok := errors.AsType[*timeout.Error](err)
			require.True(t, ok)
			assert.Equal(t, "inner", failure.Source.Strategy, "the shorter one")
			assert.Equal(t, time.Second, failure.After)
		}
	})
}

func TestOptions_Func(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		p := make1(0, &timeout.Options{Func: func(ctx context.Context) time.Duration {
			d, _ := ctx.Value(key{}).(time.Duration)
			return d
		}})
		began := time.Now()
		err := p.Execute(context.WithValue(t.Context(), key{}, 3*time.Second), untilDone)
		assert.ErrorIs(t, err, pipeline.ErrRejected)
		assert.Equal(t, 3*time.Second, time.Since(began))
		for _, none := range []time.Duration{0, -1} {
			err = p.Execute(context.WithValue(t.Context(), key{}, none), func(ctx context.Context) error {
				_, limited := ctx.Deadline()
				assert.False(t, limited)
				return nil
			})
			assert.NoError(t, err)
		}
	})
}

// A strategy that waits for its context stops, and the callback does not run.
func TestStrategy_StrategiesInsideStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			<-ctx.Done()
			return next.Run(ctx)
		})
		p := weir.Must(pipeline.New("orders", timeout.New(time.Second, nil), slow))
		err := p.Execute(t.Context(), func(context.Context) error { t.Error("it ran"); return nil })
		failure, ok := errors.AsType[*timeout.Error](err)
		require.True(t, ok)
		assert.ErrorIs(t, failure.Err, context.DeadlineExceeded)
	})
}

func TestOptions(t *testing.T) {
	s := timeout.New(0, nil)
	assert.Equal(t, 30*time.Second, s.Timeout())
	assert.Equal(t, "Timeout", s.Name())
	assert.NoError(t, s.Validate())
	assert.Equal(t, "Quick", timeout.New(1, &timeout.Options{Name: "Quick"}).Name())
	_, err := pipeline.New("orders", timeout.New(-1, nil))
	assert.ErrorContains(t, err, "Strategies[0].Timeout must be more than 0, got -1ns")
	forever := make1(1<<63-1, nil)
	assert.NoError(t, forever.Execute(t.Context(), func(ctx context.Context) error {
		_ = ctx.Done()
		return ctx.Err()
	}))
}

// A panic in failsafe-go loses what was held. Ours is the context.
func TestStrategy_PanicAndGoexit(t *testing.T) {
	p := make1(time.Hour, nil)
	for name, leave := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			var kept context.Context
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() {
					if r := recover(); r != nil {
						assert.Equal(t, "boom", r)
					}
				}()
				_ = p.Execute(context.Background(), func(ctx context.Context) error {
					kept = ctx
					_ = ctx.Done()
					leave()
					return nil
				})
			})
			wg.Wait()
			<-kept.Done()
			assert.Equal(t, context.Canceled, kept.Err())
		})
	}
}

// An error says of another attempt what the callback's error says.
func TestError_Retryable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{{nil, true}, {context.DeadlineExceeded, true}, {&circuitbreaker.OpenError{}, false}} {
		retryable, known := pipeline.Retryable(&timeout.Error{Err: c.err})
		assert.True(t, known)
		assert.Equal(t, c.want, retryable, c.err)
	}
}
