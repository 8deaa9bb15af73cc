package registry_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// neverClosed fails the test for what no execution may meet because of a reload.
func neverClosed(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	assert.NotErrorIs(t, err, limiter.ErrClosed)
	assert.NotErrorIs(t, err, pipeline.ErrClosed)
	assert.ErrorIs(t, err, pipeline.ErrRejected)
	if rejected, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		assert.NotEqual(t, limiter.ReasonClosed, rejected.Reason)
	}
}

// load runs executions of p on a few goroutines until stop is called.
func load(t *testing.T, p *pipeline.Pipeline, call func(context.Context) error) (stop func()) {
	t.Helper()
	var stopped atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for !stopped.Load() {
				neverClosed(t, p.Execute(t.Context(), call))
			}
		})
	}
	return func() {
		stopped.Store(true)
		wg.Wait()
	}
}

// Every reload closes the limiter of the version before it, and no execution fails.
func TestReload_ChangesOfKindUnderLoadConcurrentSafe(t *testing.T) {
	r := open(t, nil)
	now := 0
	p := define(t, r, "orders", func(b *registry.Builder) error {
		b.Add(ratelimit.New(subjects[now%len(subjects)].make(b, 1000+now), nil))
		b.Add(ratelimit.New(nil, nil)) // owned by the strategy
		return nil
	})
	stop := load(t, p, nothing)
	for now = range 500 {
		require.NoError(t, r.Reload(t.Context()))
	}
	stop()
}
