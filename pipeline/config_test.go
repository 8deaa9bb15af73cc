package pipeline_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// owner is a strategy with everything that is optional.
type owner struct {
	passThrough
	name     string
	invalid  error
	closeErr error
	closed   *[]string
}

func (o *owner) Name() string    { return o.name }
func (o *owner) Validate() error { return o.invalid }
func (o *owner) Close() error {
	*o.closed = append(*o.closed, o.name)
	return o.closeErr
}

func TestConfig_BuildReturnsEveryProblem(t *testing.T) {
	bad, worse := errors.New("too small"), errors.New("too large")
	_, err := pipeline.New("orders",
		&owner{name: "First", invalid: bad},
		nil,
		passThrough{},
		(*owner)(nil),
		pipeline.StrategyFunc(nil),
		&owner{name: "", invalid: worse},
		pipeline.Embed(nil),
	)
	require.Error(t, err)
	assert.EqualError(t, err, "pipeline orders: "+
		"Strategies[0] is invalid: too small; Strategies[1] must not be nil; Strategies[3] must not be nil; "+
		"Strategies[4] must not be nil; Strategies[5] is invalid: too large; Strategies[6] must not be nil")
	for _, target := range []error{weir.ErrInvalidOptions, bad, worse} {
		assert.ErrorIs(t, err, target)
	}
	options, ok := errors.AsType[*weir.OptionsError](err)
	require.True(t, ok)
	assert.Equal(t, "pipeline", options.Package)
	assert.Equal(t, "orders", options.Name)
	_, err = pipeline.New("", nil)
	assert.EqualError(t, err, "pipeline: Strategies[0] must not be nil")
	assert.Panics(t, func() { weir.Must(pipeline.New("orders", nil)) })
}

func TestConfig_BuildCopiesTheStrategies(t *testing.T) {
	var log []string
	c := pipeline.Config{Name: "a", Instance: "eu-1", Strategies: []pipeline.Strategy{named{"one", &log}}}
	p := weir.Must(c.Build())
	c.Strategies[0] = named{"two", &log}
	require.NoError(t, p.Execute(t.Context(), func(context.Context) error { return nil }))
	assert.Equal(t, []string{"enter one", "leave one"}, log)
	assert.Equal(t, "a", p.Name())
	assert.Equal(t, "eu-1", p.Instance())
}

func TestPipeline_Strategies(t *testing.T) {
	var log []string
	inner := weir.Must(pipeline.New("inner"))
	p := weir.Must(pipeline.New("p", named{"one", &log}, passThrough{}, pipeline.Embed(inner)))
	var names []string
	for source, s := range p.Strategies() {
		names = append(names, source.String())
		if e, ok := s.(interface{ Pipeline() *pipeline.Pipeline }); ok {
			assert.Same(t, inner, e.Pipeline())
		}
	}
	assert.Equal(t, []string{"p/one", "p", "p/inner"}, names)
	for range p.Strategies() {
		break // may be left early
	}
}

func TestPipeline_CloseClosesAllInOrder(t *testing.T) {
	var closed []string
	first, second := errors.New("first"), errors.New("second")
	p := weir.Must(pipeline.New("p",
		&owner{name: "a", closeErr: first, closed: &closed},
		passThrough{},
		&owner{name: "b", closed: &closed},
		&owner{name: "c", closeErr: second, closed: &closed},
	))
	err := p.Close()
	assert.ErrorIs(t, err, first)
	assert.ErrorIs(t, err, second)
	assert.ErrorContains(t, err, "closing p/a: first")
	assert.NoError(t, p.Close())
	assert.Equal(t, []string{"a", "b", "c"}, closed, "one that fails does not keep the others open")

	for range 2 {
		err = p.Execute(t.Context(), func(context.Context) error { t.Error("it ran"); return nil })
		assert.ErrorIs(t, err, pipeline.ErrClosed)
		assert.True(t, pipeline.NotCalled(err), "or a circuit breaker further out would count it")
		assert.EqualError(t, err, "pipeline: closed: p")
	}
	_, err = pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) { return 1, nil })
	assert.ErrorIs(t, err, pipeline.ErrClosed)
	assert.Equal(t, "p", p.Name())
}

func TestPipeline_CloseConcurrent(t *testing.T) {
	var closed []string
	p := weir.Must(pipeline.New("p", &owner{name: "a", closed: &closed}))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				err := p.Execute(t.Context(), func(context.Context) error { return nil })
				if errors.Is(err, pipeline.ErrClosed) {
					return
				}
			}
		})
		wg.Go(func() { assert.NoError(t, p.Close()) })
	}
	wg.Wait()
	assert.Equal(t, []string{"a"}, closed)
}

func TestEmbed_KeepsNameAndIsNotClosed(t *testing.T) {
	var closed []string
	var outerEvents, innerEvents []pipeline.Event
	inner := weir.Must(pipeline.Config{
		Name: "inner", Strategies: []pipeline.Strategy{&owner{name: "a", closed: &closed}, reporter{}},
		Listener: collect(&innerEvents),
	}.Build())
	outer := weir.Must(pipeline.Config{
		Name: "outer", Strategies: []pipeline.Strategy{pipeline.Embed(inner), reporter{}}, Listener: collect(&outerEvents),
	}.Build())
	v, err := pipeline.ExecuteValue(t.Context(), outer, func(context.Context) (string, error) { return "through both", nil })
	require.NoError(t, err)
	assert.Equal(t, "through both", v)
	assert.Equal(t, []string{"PipelineExecuting inner", "Noted inner/Reporter", "PipelineExecuted inner"}, names(innerEvents))
	assert.Equal(t, []string{"PipelineExecuting outer", "Noted outer/Reporter", "PipelineExecuted outer"}, names(outerEvents))

	require.NoError(t, outer.Close())
	assert.Empty(t, closed)
	require.NoError(t, inner.Execute(t.Context(), func(context.Context) error { return nil }))
	require.NoError(t, inner.Close())
	assert.Equal(t, []string{"a"}, closed)

	again := weir.Must(pipeline.New("again", pipeline.Embed(inner)))
	assert.ErrorIs(t, again.Execute(t.Context(), func(context.Context) error { return nil }), pipeline.ErrClosed)
}
