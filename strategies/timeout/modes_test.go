package timeout_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// A mode is one of the two contexts that an execution can get: one that is armed when Done is called, or one that is armed
// from the start. Callers see no difference; the tests in this file run in both modes.
type mode bool

const (
	lazily         mode = false
	armedFromStart mode = true
)

func (m mode) String() string {
	if m == armedFromStart {
		return "armed from the start"
	}
	return "armed when asked"
}

// inBothModes runs f as a subtest a mode, each in a bubble of its own.
func inBothModes(t *testing.T, f func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range []mode{lazily, armedFromStart} {
		t.Run(m.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, m) })
		})
	}
}

// strategy makes one that is in the mode for its next executions: at least 50.
func (m mode) strategy(t *testing.T, d time.Duration, o *timeout.Options) *timeout.Strategy {
	t.Helper()
	s := timeout.New(d, o)
	if m == armedFromStart {
		training := weir.Must(pipeline.New("training", s))
		for range 200 {
			require.NoError(t, training.Execute(t.Context(), func(ctx context.Context) error { _ = ctx.Done(); return nil }))
		}
	}
	require.NoError(t, weir.Must(pipeline.New("check", s)).Execute(t.Context(), func(ctx context.Context) error {
		m.check(t, ctx)
		return nil
	}))
	return s
}

func (m mode) pipeline(t *testing.T, d time.Duration, o *timeout.Options) *pipeline.Pipeline {
	t.Helper()
	return weir.Must(pipeline.New("orders", m.strategy(t, d, o)))
}

// check tells by the context in which mode an execution runs: only a context of
// ours has this method.
func (m mode) check(t *testing.T, ctx context.Context) {
	t.Helper()
	_, ours := ctx.(interface{ AfterFunc(func()) func() bool })
	require.Equal(t, m == lazily, ours, "not the mode under test: %T", ctx)
}

func TestModes_TimedOut(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		var order []string
		var events []pipeline.Event
		s := m.strategy(t, time.Second, &timeout.Options{OnTimeout: func(ctx context.Context, d time.Duration) {
			order = append(order, fmt.Sprint("OnTimeout ", d, " ", ctx.Err()))
		}})
		p := weir.Must(pipeline.Config{Name: "orders", Strategies: []pipeline.Strategy{s},
			Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
				if e.Name == timeout.EventTimeout {
					events, order = append(events, e), append(order, e.Name)
				}
			})}.Build())
		began := time.Now()
		value, err := pipeline.ExecuteValue(t.Context(), p, func(ctx context.Context) (string, error) {
			m.check(t, ctx)
			return "half", untilDone(ctx)
		})
		assert.Equal(t, time.Second, time.Since(began))
		assert.Empty(t, value)
		assert.EqualError(t, err, "timeout: orders/Timeout: no result within 1s")
		assert.ErrorIs(t, err, pipeline.ErrRejected)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, context.Canceled)
		failure, ok := errors.AsType[*timeout.Error](err)
		require.True(t, ok)
		assert.Equal(t, timeout.Error{
			After:  time.Second,
			Source: pipeline.Source{Pipeline: "orders", Strategy: "Timeout"},
			Err:    context.DeadlineExceeded,
		}, *failure)
		assert.Equal(t, []string{"OnTimeout", "OnTimeout 1s <nil>"}, order)
		require.Len(t, events, 1)
		assert.Equal(t, pipeline.SeverityError, events[0].Severity)
		assert.Equal(t, err, events[0].Err)
	})
}

func TestModes_WhichFailuresAreTimeouts(t *testing.T) {
	cases := []struct {
		name string
		err  func(ctx context.Context) error
		ours bool
	}{
		{"the context's error", func(ctx context.Context) error { return ctx.Err() }, true},
		{"wrapped", func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }, true},
		{"joined", func(ctx context.Context) error { return errors.Join(errBoom, ctx.Err()) }, true},
		{"pipeline.ContextError", pipeline.ContextError, true},
		{"Canceled, of a context in between", func(context.Context) error { return context.Canceled }, true},
		{"the cause", context.Cause, true},
		{"a connection with our Deadline", func(context.Context) error { return os.ErrDeadlineExceeded }, true},
		{"another", func(context.Context) error { return errBoom }, false},
		{"another timeout's", func(context.Context) error { return &timeout.Error{After: time.Second} }, false},
		{"none: a late success", func(context.Context) error { return nil }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, m mode) {
				for _, late := range []bool{true, false} {
					var inner error
					err := m.pipeline(t, time.Second, nil).Execute(t.Context(), func(ctx context.Context) error {
						m.check(t, ctx)
						limit := time.Second
						if !late {
							limit--
						}
						time.Sleep(limit)
						synctest.Wait() // for a timer that fires at the same moment
						inner = c.err(ctx)
						return inner
					})
					if late && c.ours {
						failure, ok := errors.AsType[*timeout.Error](err)
						require.True(t, ok, err)
						assert.Equal(t, inner, failure.Err)
						assert.Equal(t, "Timeout", failure.Source.Strategy)
						continue
					}
					assert.Equal(t, inner, err, "late: %v", late)
				}
			})
		})
	}
}

func TestModes_ValueWithAnotherError(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		v, err := pipeline.ExecuteValue(t.Context(), m.pipeline(t, time.Second, nil), func(context.Context) (string, error) {
			time.Sleep(time.Minute)
			return "half", errBoom
		})
		assert.Equal(t, "half", v)
		assert.Equal(t, errBoom, err)
		v, err = pipeline.ExecuteValue(t.Context(), m.pipeline(t, time.Second, nil), func(context.Context) (string, error) {
			time.Sleep(time.Minute)
			return "late", nil
		})
		assert.Equal(t, "late", v)
		assert.NoError(t, err)
	})
}

func TestModes_CallersContextEnds(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		execute := func(ctx context.Context, fn func(context.Context) error) error { // a new one each: it learns
			return m.pipeline(t, time.Minute, nil).Execute(ctx, fn)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		assert.Equal(t, context.Canceled, execute(ctx, untilDone))

		// The caller gives up first, and the callback comes back after our deadline.
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		assert.Equal(t, context.Canceled, execute(ctx, func(ctx context.Context) error {
			time.Sleep(2 * time.Minute)
			return context.Canceled
		}))

		// Our deadline passes, and the caller gives up before the callback returns.
		ctx, cancel = context.WithCancel(t.Context())
		assert.Equal(t, context.DeadlineExceeded, execute(ctx, func(ctx context.Context) error {
			err := untilDone(ctx)
			cancel()
			return err
		}))

		for _, limit := range []time.Duration{time.Second, time.Minute} { // the same is not more
			for _, form := range []func(time.Time) time.Time{nil, func(t time.Time) time.Time { return t.Round(0) }} {
				deadline := time.Now().Add(limit)
				if form != nil {
					deadline = form(deadline)
				}
				ctx, cancel := context.WithDeadline(t.Context(), deadline)
				err := execute(ctx, func(inner context.Context) error {
					assert.Same(t, ctx, inner, "with nothing to add, there is no context of ours")
					return untilDone(inner)
				})
				assert.Equal(t, context.DeadlineExceeded, err)
				cancel()
			}
		}

		// The caller's comes after ours.
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute+1)
		defer cancel()
		assert.ErrorIs(t, execute(ctx, untilDone), pipeline.ErrRejected)
	})
}

func TestModes_NestedTimeouts(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		for _, innerFirst := range []bool{false, true} {
			order := []pipeline.Strategy{
				m.strategy(t, time.Minute, &timeout.Options{Name: "outer"}),
				m.strategy(t, time.Second, &timeout.Options{Name: "inner"}),
			}
			if innerFirst {
				slices.Reverse(order)
			}
			err := weir.Must(pipeline.New("orders", order...)).Execute(t.Context(), untilDone)
			failure, ok := errors.AsType[*timeout.Error](err)
			require.True(t, ok)
			assert.Equal(t, "inner", failure.Source.Strategy, "the shorter one")
		}
	})
}

func TestModes_StrategiesInsideStop(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		slow := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
			time.Sleep(time.Second) // like a queue that does not look at its context
			synctest.Wait()         // for a timer that fires at the same moment
			return next.Run(ctx)
		})
		p := weir.Must(pipeline.New("orders", m.strategy(t, time.Second, nil), slow))
		err := p.Execute(t.Context(), func(context.Context) error { t.Error("it ran"); return nil })
		failure, ok := errors.AsType[*timeout.Error](err)
		require.True(t, ok)
		assert.ErrorIs(t, failure.Err, context.DeadlineExceeded)
	})
}

func TestModes_Func(t *testing.T) {
	inBothModes(t, func(t *testing.T, m mode) {
		var limit time.Duration
		execute := func(fn func(context.Context) error) error {
			asked := limit
			limit = time.Hour // while it is trained
			p := m.pipeline(t, 0, &timeout.Options{Func: func(context.Context) time.Duration { return limit }})
			limit = asked
			return p.Execute(t.Context(), fn)
		}
		for _, limit = range []time.Duration{3 * time.Second, time.Second, time.Minute} {
			began := time.Now()
			failure, ok := errors.AsType[*timeout.Error](execute(untilDone))
			require.True(t, ok)
			assert.Equal(t, limit, failure.After, "not an earlier execution's")
			assert.Equal(t, limit, time.Since(began))
		}
		for _, limit = range []time.Duration{0, -1} {
			assert.NoError(t, execute(func(ctx context.Context) error {
				_, limited := ctx.Deadline()
				assert.False(t, limited)
				return nil
			}))
		}
		limit = 1<<63 - 1
		assert.NoError(t, execute(func(ctx context.Context) error {
			_ = ctx.Done()
			time.Sleep(24 * 365 * time.Hour)
			return ctx.Err()
		}))
	})
}
