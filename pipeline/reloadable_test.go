package pipeline_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// numbered is a strategy that makes its number the result, and counts its Closes.
type numbered struct {
	number int
	closed *atomic.Int64
}

func (n numbered) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	if _, err := next.Run(ctx); err != nil {
		return nil, err
	}
	return &n.number, nil
}

func (n numbered) Close() error {
	if n.closed != nil {
		n.closed.Add(1)
	}
	return nil
}

func prepare(t testing.TB, strategies ...pipeline.Strategy) *pipeline.Prepared {
	t.Helper()
	p, err := pipeline.Config{Name: "orders", Strategies: strategies}.Prepare()
	require.NoError(t, err)
	return p
}

// answer runs wait in an execution and returns the number of the version.
func answer(t testing.TB, p *pipeline.Pipeline, wait func()) int {
	t.Helper()
	n, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (*int, error) {
		wait()
		return nil, nil
	})
	if !assert.NoError(t, err) {
		return -1
	}
	return *n
}

func TestReloadable_WithoutAVersion(t *testing.T) {
	r := pipeline.NewReloadable("orders", "eu")
	p := r.Pipeline()
	assert.Equal(t, "orders", p.Name())
	assert.Equal(t, "eu", p.Instance())
	err := p.Execute(t.Context(), func(context.Context) error { return nil })
	require.ErrorIs(t, err, pipeline.ErrClosed)
	assert.EqualError(t, err, "pipeline: closed: orders: it has not been built yet")

	why := errors.New("gone for good")
	r.Retire(why)
	err = p.Execute(t.Context(), func(context.Context) error { return nil })
	require.ErrorIs(t, err, pipeline.ErrClosed)
	require.ErrorIs(t, err, why)
	<-r.Retire(nil).Drained() // there is nothing to wait for
}

func TestReloadable_ExecutionStaysOnItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		r := pipeline.NewReloadable("orders", "")
		p := r.Pipeline()
		r.Put(prepare(t, numbered{1, &closed}))

		slow := make(chan int)
		go func() { slow <- answer(t, p, func() { time.Sleep(time.Minute) }) }()
		synctest.Wait()
		assert.Equal(t, 1, p.Describe().Running)
		old := r.Put(prepare(t, numbered{number: 2}))

		assert.Equal(t, 2, answer(t, p, func() {}))
		assert.Equal(t, 1, old.Running())
		assert.Zero(t, closed.Load())

		assert.Equal(t, 1, <-slow)
		<-old.Drained()
		assert.Zero(t, old.Running())
		assert.Zero(t, p.Describe().Running)
		require.NoError(t, old.Close())
		require.NoError(t, old.Close())
		assert.EqualValues(t, 1, closed.Load())
	})
}

func TestReloadable_PipelineCannotBeClosed(t *testing.T) {
	var closed atomic.Int64
	r := pipeline.NewReloadable("orders", "")
	r.Put(prepare(t, numbered{1, &closed}))
	require.ErrorContains(t, r.Pipeline().Close(), "pipeline orders: it belongs to a registry")
	assert.Zero(t, closed.Load())
	assert.Equal(t, 1, answer(t, r.Pipeline(), func() {}))
}

func TestConfig_PrepareInvalid(t *testing.T) {
	_, err := pipeline.Config{Strategies: []pipeline.Strategy{nil}}.Prepare()
	require.ErrorIs(t, err, weir.ErrInvalidOptions)
}

func TestReloadable_DrainedAfterAPanic(t *testing.T) {
	r := pipeline.NewReloadable("orders", "")
	r.Put(prepare(t, passThrough{}))
	assert.Panics(t, func() {
		_ = r.Pipeline().Execute(t.Context(), func(context.Context) error { panic("boom") })
	})
	<-r.Put(prepare(t)).Drained()
}

// A pipeline inside another one counts, also where it has no strategies.
func TestReloadable_CountsEmbeddedExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := pipeline.NewReloadable("inner", "")
		r.Put(prepare(t))
		outer := weir.Must(pipeline.New("outer", pipeline.Embed(r.Pipeline())))
		go func() {
			_ = outer.Execute(t.Context(), func(context.Context) error { time.Sleep(time.Second); return nil })
		}()
		synctest.Wait()
		old := r.Put(prepare(t))
		assert.Equal(t, 1, old.Running())
		<-old.Drained()
		assert.Zero(t, old.Running())
	})
}

// gate counts who is inside of a version, and knows whether it was drained.
type gate struct {
	inside  atomic.Int64
	drained atomic.Bool
}

func (g *gate) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	g.inside.Add(1)
	defer g.inside.Add(-1)
	if g.drained.Load() {
		return nil, errors.New("runs on a version that was drained")
	}
	return next.Run(ctx)
}

func TestRetired_DrainedConcurrent(t *testing.T) {
	r := pipeline.NewReloadable("orders", "")
	current := &gate{}
	r.Put(prepare(t, current))
	var stop atomic.Bool
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for !stop.Load() {
				if err := r.Pipeline().Execute(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		next := &gate{}
		old := r.Put(prepare(t, next))
		<-old.Drained()
		current.drained.Store(true)
		if n := current.inside.Load(); n != 0 {
			t.Fatalf("%d are inside of a drained version", n)
		}
		current = next
	}
	stop.Store(true)
	users.Wait()
}

func TestReloadable_ExecuteAllocatesNothing(t *testing.T) {
	r := pipeline.NewReloadable("orders", "")
	r.Put(prepare(t, passThrough{}))
	ctx := t.Context()
	fn := func(context.Context) error { return nil }
	allocates(t, "Reloadable", 0, func() { _ = r.Pipeline().Execute(ctx, fn) })
}
