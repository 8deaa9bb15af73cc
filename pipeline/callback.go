package pipeline

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/weir-go/weir/internal/ctxerr"
)

// A callback is what the last strategy of an execution runs. Its implementations are pointers and functions, which an
// interface holds without an allocation.
type callback interface {
	run(ctx context.Context) (any, error)
}

// action is the callback of [Pipeline.Execute].
type action func(context.Context) error

func (f action) run(ctx context.Context) (any, error) { return nil, f(ctx) }

// producer is the callback of [ExecuteValue].
type producer[T any] func(context.Context) (T, error)

func (f producer[T]) run(ctx context.Context) (any, error) {
	v, err := f(ctx)
	return v, err
}

// ExecuteValue runs fn through p like [Pipeline.Execute], and also returns the resulting value. If there are both a
// value and an error, it returns both.
//
// Strategies see the value as an any. If T is neither a pointer, nor a map, a channel or a func, the conversion costs
// one allocation for each run of fn, unless the pipeline has neither strategies nor a Listener.
//
// If a strategy returns a value of another type, as a fallback can, the error is [ErrResultType] and names both types
// and the pipeline. If the strategy also returns an error, that is returned and the value dropped. If a strategy
// returns (nil, nil), the result is the zero T if T can be nil, else ErrResultType.
func ExecuteValue[T any](ctx context.Context, p *Pipeline, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	if fn == nil {
		return zero, errNilCallback(p)
	}
	v := p.load()
	if v.isBare() {
		if ctx.Err() != nil {
			return zero, ctxerr.NotBegun(ctx)
		}
		return fn(ctx)
	}
	value, err := p.run(ctx, v, producer[T](fn))
	if typed, ok := value.(T); ok {
		return typed, err
	}
	if err == nil {
		err = checkNil[T](p, value)
	}
	return zero, err
}

// checkNil returns nil if value, which is not a T, stands for the zero T, else an ErrResultType.
func checkNil[T any](p *Pipeline, value any) error {
	want, got := reflect.TypeFor[T](), "nil"
	if value != nil {
		got = reflect.TypeOf(value).String()
	} else if k := want.Kind(); k >= reflect.Chan && k <= reflect.Slice || k == reflect.UnsafePointer { // the kinds that can be nil
		return nil
	}
	return fmt.Errorf("%w: %swant %v, got %s", ErrResultType, p.prefix(), want, got)
}

// prefix returns what errors begin with: "pipeline orders: ", or "pipeline: " if p has no name.
func (p *Pipeline) prefix() string { return strings.TrimSuffix("pipeline "+p.Name(), " ") + ": " }

func errNilCallback(p *Pipeline) error { return errors.New(p.prefix() + "the callback is nil") }

// HandleResult converts handle, which takes results of type T, to the type of the option Handle of strategies such as
// retry and hedge. T must be the type that [ExecuteValue] is called for.
//
//   - For a nil result, handle is called with the zero T.
//   - For a result of another type that comes with an error, handle is called with the zero T and the error.
//   - For a result of another type without an error, handle is not called, and the outcome is not handled. This is not
//     an error, because one pipeline can run callbacks of several types.
func HandleResult[T any](handle func(T, error) bool) func(result any, err error) bool {
	return func(result any, err error) bool {
		v, ok := result.(T)
		if !ok && result != nil && err == nil {
			return false
		}
		return handle(v, err)
	}
}
