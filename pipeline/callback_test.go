package pipeline_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/pipeline"
)

// returning is a pipeline whose strategy makes a result up.
func returning(value any, err error) *pipeline.Pipeline {
	return weir.Must(pipeline.New("orders", pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) {
		return value, err
	})))
}

func execute[T any](t *testing.T, p *pipeline.Pipeline) (T, error) {
	t.Helper()
	return pipeline.ExecuteValue(t.Context(), p, func(context.Context) (T, error) {
		var zero T
		return zero, nil
	})
}

func TestExecuteValue_WrongType(t *testing.T) {
	v, err := execute[int](t, returning("text", nil))
	assert.Zero(t, v)
	assert.ErrorIs(t, err, pipeline.ErrResultType)
	assert.EqualError(t, err, "pipeline: a strategy returned a value of the wrong type: pipeline orders: want int, got string")

	_, err = execute[*int](t, returning(7, nil))
	assert.ErrorContains(t, err, "want *int, got int")
	_, err = execute[io.Reader](t, returning(7, nil))
	assert.ErrorContains(t, err, "want io.Reader, got int")
}

func TestExecuteValue_NilValue(t *testing.T) {
	p := returning(nil, nil)
	check := func(name string, err error, fine bool) {
		t.Helper()
		if fine {
			assert.NoError(t, err, name)
			return
		}
		assert.ErrorIs(t, err, pipeline.ErrResultType, name)
		assert.ErrorContains(t, err, "got nil", name)
	}
	_, err := execute[int](t, p)
	check("int", err, false)
	_, err = execute[struct{ A *int }](t, p)
	check("struct", err, false)
	_, err = execute[any](t, p)
	check("any", err, true)
	_, err = execute[*int](t, p)
	check("*int", err, true)
	_, err = execute[[]int](t, p)
	check("[]int", err, true)
	_, err = execute[chan int](t, p)
	check("chan", err, true)
}

func TestExecuteValue_OtherValueWithAnError(t *testing.T) {
	for _, value := range []any{nil, "text"} {
		v, err := execute[int](t, returning(value, errBoom))
		assert.Zero(t, v)
		assert.Same(t, errBoom, err)
	}
}

func TestExecuteValue_ValueWithAnError(t *testing.T) {
	for _, p := range []*pipeline.Pipeline{nil, weir.Must(pipeline.New("p", passThrough{}))} {
		v, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (string, error) { return "partial", errBoom })
		assert.Equal(t, "partial", v)
		assert.Same(t, errBoom, err)
	}
}

func TestExecuteValue_InterfaceTypes(t *testing.T) {
	p := weir.Must(pipeline.New("p", passThrough{}))
	v, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (error, error) { return errBoom, nil })
	require.NoError(t, err)
	assert.Same(t, errBoom, v)

	typedNil, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (fmt.Stringer, error) { return (*stringer)(nil), nil })
	require.NoError(t, err)
	assert.False(t, typedNil == nil)
	assert.IsType(t, (*stringer)(nil), typedNil)

	none, err := pipeline.ExecuteValue(t.Context(), p, func(context.Context) (fmt.Stringer, error) { return nil, nil })
	require.NoError(t, err)
	assert.True(t, none == nil)
}

type stringer struct{}

func (*stringer) String() string { return "" }

func TestHandleResult(t *testing.T) {
	var got []string
	handle := pipeline.HandleResult(func(n int, err error) bool { got = append(got, fmt.Sprint(n, " ", err)); return true })
	assert.True(t, handle(5, nil))
	assert.True(t, handle(nil, nil))
	assert.True(t, handle(nil, errBoom))
	assert.True(t, handle("text", errBoom))
	assert.False(t, handle("text", nil), "handle knows nothing about results of another type")
	assert.Equal(t, []string{"5 <nil>", "0 <nil>", "0 boom", "0 boom"}, got)
}
