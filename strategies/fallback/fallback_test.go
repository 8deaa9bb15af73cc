package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/timeout"
)

var errBoom = errors.New("boom")

func with(action fallback.Action, o *fallback.Options) *pipeline.Pipeline {
	return weir.Must(pipeline.New("orders", fallback.New(action, o)))
}

// returning is a callback with that outcome.
func returning[T any](v T, err error) func(context.Context) (T, error) {
	return func(context.Context) (T, error) { return v, err }
}

func TestStrategy_Success(t *testing.T) {
	p := with(func(context.Context, any, error) (any, error) { panic("not needed") }, nil)
	v, err := pipeline.ExecuteValue(t.Context(), p, returning("fine", nil))
	assert.NoError(t, err)
	assert.Equal(t, "fine", v)
}

func TestOptions_HandleByDefault(t *testing.T) {
	p := with(fallback.Value("instead"), nil)
	for _, err := range []error{
		errBoom, fmt.Errorf("call: %w", errBoom), pipeline.ErrRejected, &timeout.Error{After: 1},
		context.DeadlineExceeded, fmt.Errorf("query: %w", context.DeadlineExceeded), // not the execution's own
	} {
		v, got := pipeline.ExecuteValue(t.Context(), p, returning("", err))
		assert.NoError(t, got)
		assert.Equal(t, "instead", v)
	}
	v, got := pipeline.ExecuteValue(t.Context(), p, returning("partial", context.Canceled))
	assert.Equal(t, context.Canceled, got, "as it is")
	assert.Equal(t, "partial", v)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := pipeline.ExecuteValue(ctx, p, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", fmt.Errorf("query: %w", ctx.Err())
		})
		assert.EqualError(t, err, "query: context deadline exceeded", "the caller's own")
	})
	every := with(fallback.Value("instead"), &fallback.Options{Handle: func(_ any, err error) bool { return err != nil }})
	v, err := pipeline.ExecuteValue(t.Context(), every, returning("", context.Canceled))
	assert.NoError(t, err, "those who want it say so")
	assert.Equal(t, "instead", v)
}

func TestStrategy_OutcomeOfTheAction(t *testing.T) {
	worse := errors.New("worse")
	p := with(func(_ context.Context, result any, err error) (any, error) {
		return result.(string) + " mended", fmt.Errorf("%w: %w", worse, err)
	}, nil)
	v, err := pipeline.ExecuteValue(t.Context(), p, returning("partial", errBoom))
	assert.Equal(t, "partial mended", v)
	assert.ErrorIs(t, err, worse)
	assert.ErrorIs(t, err, errBoom)
}

func TestStrategy_ExecuteWithoutAValue(t *testing.T) {
	p := with(fallback.Value(42), nil)
	assert.NoError(t, p.Execute(t.Context(), func(context.Context) error { return errBoom }))
}

func TestAction_GetsTheCallersContext(t *testing.T) {
	type key struct{}
	p := weir.Must(pipeline.New("orders",
		fallback.New(func(ctx context.Context, _ any, _ error) (any, error) {
			_, limited := ctx.Deadline()
			assert.False(t, limited, "not that of the timeout inside")
			return ctx.Value(key{}), nil
		}, nil),
		timeout.New(time.Second, nil),
	))
	v, err := pipeline.ExecuteValue(context.WithValue(t.Context(), key{}, "mine"), p, returning("", errBoom))
	assert.NoError(t, err)
	assert.Equal(t, "mine", v)
}

func TestAction_RunsAfterTheContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v, err := pipeline.ExecuteValue(ctx, with(fallback.Value("instead"), nil), func(context.Context) (string, error) {
		cancel()
		return "", errBoom
	})
	assert.NoError(t, err)
	assert.Equal(t, "instead", v)
}

func TestValue_Types(t *testing.T) {
	_, err := pipeline.ExecuteValue(t.Context(), with(fallback.Value(0), nil), returning(1.5, errBoom))
	assert.ErrorIs(t, err, pipeline.ErrResultType)
	assert.ErrorContains(t, err, "orders: want float64, got int")

	f, err := pipeline.ExecuteValue(t.Context(), with(fallback.Value[float64](7), nil), returning(1.5, errBoom))
	assert.NoError(t, err)
	assert.Equal(t, 7.0, f)

	p, err := pipeline.ExecuteValue(t.Context(), with(fallback.Value[*int](nil), nil), returning(new(int), errBoom))
	assert.NoError(t, err)
	assert.Nil(t, p)

	for _, r := range []io.Reader{nil, strings.NewReader("")} {
		got, err := pipeline.ExecuteValue(t.Context(), with(fallback.Value(r), nil), returning[io.Reader](nil, errBoom))
		assert.NoError(t, err)
		assert.Equal(t, r, got)
	}
}

func TestFunc(t *testing.T) {
	p := with(fallback.Func(func(_ context.Context, n int, err error) (int, error) {
		assert.ErrorIs(t, err, errBoom)
		return n + 1, nil
	}), nil)
	n, err := pipeline.ExecuteValue(t.Context(), p, returning(41, errBoom))
	assert.NoError(t, err)
	assert.Equal(t, 42, n)

	assert.NoError(t, p.Execute(t.Context(), func(context.Context) error { return errBoom }), "no result is the zero one")

	_, err = pipeline.ExecuteValue(t.Context(), p, returning("text", errBoom))
	assert.ErrorIs(t, err, pipeline.ErrResultType, "one of another type, too, and what comes of it does not fit")
}

func TestOptions_HandleResults(t *testing.T) {
	p := with(fallback.Value("instead"), &fallback.Options{
		Handle: pipeline.HandleResult(func(s string, err error) bool { return err == nil && s == "" }),
	})
	for outcome, want := range map[string]string{"": "instead", "fine": "fine"} {
		v, err := pipeline.ExecuteValue(t.Context(), p, returning(outcome, nil))
		assert.NoError(t, err)
		assert.Equal(t, want, v)
	}
	_, err := pipeline.ExecuteValue(t.Context(), p, returning("", errBoom))
	assert.Same(t, errBoom, err, "only what it says")
}

func TestOptions_OnFallback(t *testing.T) {
	var log []string
	o := &fallback.Options{OnFallback: func(_ context.Context, o pipeline.Event) {
		log = append(log, fmt.Sprint("callback ", o.Result, " ", o.Err, " ", o.Source))
	}}
	action := func(context.Context, any, error) (any, error) { log = append(log, "action"); return "instead", nil }
	p := weir.Must(pipeline.Config{Name: "p", Strategies: []pipeline.Strategy{fallback.New(action, o)},
		Listener: pipeline.ListenerFunc(func(_ context.Context, e pipeline.Event) {
			if e.Name == fallback.EventFallback {
				log = append(log, fmt.Sprint("OnFallback ", e.Severity, " ", e.Result, " ", e.Err, " ", e.Source))
			}
		})}.Build())
	_, err := pipeline.ExecuteValue(t.Context(), p, returning("partial", errBoom))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"OnFallback Warning partial boom p/Fallback",
		"callback partial boom p/Fallback",
		"action",
	}, log)

	log = nil
	_, _ = pipeline.ExecuteValue(t.Context(), p, returning("fine", nil))
	assert.Empty(t, log)
}

func TestStrategy_ValidateAndDescribe(t *testing.T) {
	for _, action := range []fallback.Action{nil, fallback.Func[int](nil)} {
		_, err := pipeline.New("orders", fallback.New(action, nil))
		assert.ErrorIs(t, err, weir.ErrInvalidOptions)
		assert.ErrorContains(t, err, "Strategies[0].Action must not be nil")
	}
	assert.Error(t, new(fallback.Strategy).Validate(), "made without New")

	s := fallback.New(fallback.Value(1), nil)
	assert.Equal(t, "Fallback", s.Name())
	assert.NoError(t, s.Validate())
	options, state := s.Describe()
	assert.Equal(t, fallback.Options{Name: "Fallback"}, options)
	assert.Nil(t, state)
}

func TestAllocations(t *testing.T) {
	value, ctx := new(int), t.Context()
	p := with(fallback.Value(12345), nil)
	pointer := with(fallback.Value(value), nil)
	succeed := func(context.Context) error { return nil }
	fail := func(context.Context) error { return errBoom }
	none := func(context.Context) (*int, error) { return nil, errBoom }
	for name, f := range map[string]func(){
		"success":          func() { _ = p.Execute(ctx, succeed) },
		"fallback":         func() { _ = p.Execute(ctx, fail) },
		"fallback pointer": func() { _, _ = pipeline.ExecuteValue(ctx, pointer, none) },
	} {
		if got := testing.AllocsPerRun(200, f); got != 0 {
			t.Errorf("%s: %v allocations, want 0", name, got)
		}
	}
}
