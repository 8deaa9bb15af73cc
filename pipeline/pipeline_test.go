package pipeline_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

var errBoom = errors.New("boom")

// named is a strategy with a name that notes when it is entered and left.
type named struct {
	name string
	log  *[]string
}

func (n named) Name() string { return n.name }

func (n named) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	*n.log = append(*n.log, "enter "+n.name)
	defer func() { *n.log = append(*n.log, "leave "+n.name) }()
	return next.Run(ctx)
}

type passThrough struct{}

func (passThrough) Execute(ctx context.Context, next pipeline.Next) (any, error) {
	return next.Run(ctx)
}

func passThroughs(n int) []pipeline.Strategy {
	s := make([]pipeline.Strategy, n)
	for i := range s {
		s[i] = passThrough{}
	}
	return s
}

func TestPipeline_ExecuteRunsOutermostFirst(t *testing.T) {
	var log []string
	p := weir.Must(pipeline.New("p", named{"a", &log}, named{"b", &log}))
	err := p.Execute(t.Context(), func(context.Context) error {
		log = append(log, "callback")
		return errBoom
	})
	assert.Same(t, errBoom, err, "the callback's error comes back as it is")
	assert.Equal(t, []string{"enter a", "enter b", "callback", "leave b", "leave a"}, log)
}

func TestPipeline_ZeroAndNil(t *testing.T) {
	for name, p := range map[string]*pipeline.Pipeline{"nil": nil, "zero": new(pipeline.Pipeline)} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, errBoom, p.Execute(t.Context(), func(context.Context) error { return errBoom }))
			v, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) { return 7, nil })
			require.NoError(t, err)
			assert.Equal(t, 7, v)
			assert.Empty(t, p.Name())
			for range p.Strategies() {
				t.Error("it has no strategies")
			}
		})
	}
	var none *pipeline.Pipeline
	assert.NoError(t, none.Close())
	zero := new(pipeline.Pipeline)
	assert.NoError(t, zero.Close())
	assert.ErrorIs(t, zero.Execute(t.Context(), func(context.Context) error { return nil }), pipeline.ErrClosed)
}

func TestPipeline_ExecuteNilCallback(t *testing.T) {
	p := weir.Must(pipeline.New("orders"))
	assert.EqualError(t, p.Execute(t.Context(), nil), "pipeline orders: the callback is nil")
	_, err := pipeline.ExecuteValue[int](t.Context(), nil, nil)
	assert.EqualError(t, err, "pipeline: the callback is nil")
}

func TestNext_Zero(t *testing.T) {
	var next pipeline.Next
	_, err := next.Run(t.Context())
	assert.EqualError(t, err, "pipeline: Run of a zero Next")
	assert.False(t, next.Listening())
	assert.Equal(t, pipeline.Source{}, next.Source())
	next.Report(t.Context(), pipeline.Event{Severity: pipeline.SeverityError})
}

// failsafe-go's limiter and bulkhead ran the function about half the time here.
func TestPipeline_ExecuteDoneContext(t *testing.T) {
	cause := errors.New("the user went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	unreachable := pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) {
		t.Error("the strategy ran")
		return nil, nil
	})
	for name, p := range map[string]*pipeline.Pipeline{
		"nil": nil, "empty": weir.Must(pipeline.New("p")), "one": weir.Must(pipeline.New("p", unreachable)),
	} {
		t.Run(name, func(t *testing.T) {
			err := p.Execute(ctx, func(context.Context) error { t.Error("the callback ran"); return nil })
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, cause)
			_, err = pipeline.ExecuteValue(ctx, p, func(context.Context) (int, error) { t.Error("the callback ran"); return 0, nil })
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, cause)
		})
	}
}

func TestNext_RunContextDoneBeforeTheCallback(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	canceller := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		cancel()
		return next.Run(ctx)
	})
	between := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) { return next.Run(ctx) })
	callback := func(context.Context) error { t.Error("the callback ran"); return nil }
	err := weir.Must(pipeline.New("p", canceller)).Execute(ctx, callback)
	assert.ErrorIs(t, err, context.Canceled)
	assert.True(t, pipeline.NotCalled(err))

	_, err = pipeline.ExecuteValue(ctx, new(pipeline.Pipeline), func(context.Context) (int, error) { return 0, callback(ctx) })
	assert.ErrorIs(t, err, context.Canceled)
	assert.True(t, pipeline.NotCalled(err))

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	err = weir.Must(pipeline.New("p", canceller, between)).Execute(ctx, callback)
	assert.ErrorIs(t, err, context.Canceled)
	assert.True(t, pipeline.NotCalled(err))
}

func TestPipeline_ExecutePanic(t *testing.T) {
	var log []string
	var events []pipeline.Event
	for _, l := range []pipeline.Listener{nil, collect(&events)} {
		p := weir.Must(pipeline.Config{Strategies: []pipeline.Strategy{named{"a", &log}}, Listener: l}.Build())
		value := new(int)
		assert.PanicsWithValue(t, value, func() {
			_ = p.Execute(t.Context(), func(context.Context) error { panic(value) })
		})
	}
	assert.Equal(t, []string{"enter a", "leave a", "enter a", "leave a"}, log)
	require.Len(t, events, 2, "an execution that was reported to begin is reported to end")
	assert.Equal(t, pipeline.ErrAborted, events[1].Err)
}

func TestNext_RunManyTimes(t *testing.T) {
	twice := pipeline.StrategyFunc(func(ctx context.Context, next pipeline.Next) (any, error) {
		if _, err := next.Run(ctx); err == nil {
			return nil, errors.New("the first should have failed")
		}
		return next.Run(ctx)
	})
	p := weir.Must(pipeline.New("p", twice, passThrough{}))
	calls := 0
	v, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (int, error) {
		calls++
		if calls == 1 {
			return 0, errBoom
		}
		return calls, nil
	})
	require.NoError(t, err)
	assert.Equal(t, 2, v)
}

func TestPipeline_ExecuteDropsValues(t *testing.T) {
	maker := pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { return "made up", nil })
	assert.NoError(t, weir.Must(pipeline.New("p", maker)).Execute(t.Context(), func(context.Context) error { return errBoom }))
}

func TestContextError(t *testing.T) {
	assert.NoError(t, pipeline.ContextError(t.Context()))

	plain, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, context.Canceled, pipeline.ContextError(plain), "no more than there is to say")

	ctx, cancelCause := context.WithCancelCause(t.Context())
	cancelCause(errBoom)
	assert.EqualError(t, pipeline.ContextError(ctx), "context canceled: boom")

	late, cancelLate := context.WithDeadlineCause(t.Context(), time.Now().Add(-time.Second), errBoom)
	defer cancelLate()
	assert.ErrorIs(t, pipeline.ContextError(late), context.DeadlineExceeded)
	assert.ErrorIs(t, pipeline.ContextError(late), errBoom)
}
