package circuitbreaker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

var errBoom = errors.New("boom")

func succeed(context.Context) error { return nil }
func fail(context.Context) error    { return errBoom }

var source = pipeline.Source{Pipeline: "orders", Strategy: "CircuitBreaker"}

// A circuit is a strategy in a pipeline, with a log of what it tells.
type circuit struct {
	*circuitbreaker.Strategy
	p   *pipeline.Pipeline
	log []string
}

// newCircuit makes one whose events and calls of OnXxx come as text.
func newCircuit(t *testing.T, o circuitbreaker.Options) *circuit {
	t.Helper()
	c := new(circuit)
	call := func(name string) func(context.Context, circuitbreaker.Transition) {
		return func(_ context.Context, tr circuitbreaker.Transition) {
			assert.Equal(t, source, tr.Source)
			c.log = append(c.log, fmt.Sprintf("%s %v>%v %v", name, tr.From, tr.To, tr.Err))
		}
	}
	o.OnOpened, o.OnClosed, o.OnHalfOpened = call("opened"), call("closed"), call("half-opened")
	c.Strategy = circuitbreaker.New(&o)
	p, err := pipeline.Config{Name: "orders", Strategies: []pipeline.Strategy{c.Strategy},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			if e.Source == source {
				c.log = append(c.log, fmt.Sprintf("%s %v %v %v", e.Name, e.Severity, e.Duration, e.Err))
			}
		})}.Build()
	require.NoError(t, err)
	c.p = p
	return c
}

func (c *circuit) run(t *testing.T, fn func(context.Context) error) error {
	t.Helper()
	return c.p.Execute(t.Context(), fn)
}

// times runs fn n times; all are let through.
func (c *circuit) times(t *testing.T, n int, fn func(context.Context) error) {
	t.Helper()
	for range n {
		err := c.run(t, fn)
		assert.False(t, errors.Is(err, pipeline.ErrRejected), "rejected: %v", err)
	}
}

// rejects asserts that an execution is rejected, and returns the error.
func (c *circuit) rejects(t *testing.T, state circuitbreaker.State, after time.Duration) *circuitbreaker.OpenError {
	t.Helper()
	err := c.run(t, func(context.Context) error {
		t.Error("it ran")
		return nil
	})
	open, ok := errors.AsType[*circuitbreaker.OpenError](err)
	require.True(t, ok, "not rejected: %v", err)
	assert.Equal(t, state, open.State)
	wait, known := open.RetryAfter()
	assert.Equal(t, after, wait)
	assert.Equal(t, after > 0, known)
	assert.Equal(t, source, open.Source)
	assert.Equal(t, state, c.State())
	return open
}

// started is an execution that runs until it is told how to end.
type started struct {
	end  chan func(context.Context) error
	done chan error
}

// start starts one inside a bubble of synctest, and waits until it runs or is over.
func (c *circuit) start(ctx context.Context) started {
	s := started{make(chan func(context.Context) error), make(chan error, 1)}
	go func() {
		returned, err := false, error(nil)
		defer func() {
			if !returned {
				err = pipeline.ErrAborted
				_ = recover()
			}
			s.done <- err
		}()
		err = c.p.Execute(ctx, func(ctx context.Context) error {
			select {
			case end := <-s.end:
				return end(ctx)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		returned = true
	}()
	synctest.Wait()
	return s
}

func (s started) finish(end func(context.Context) error) error {
	s.end <- end
	return <-s.done
}
