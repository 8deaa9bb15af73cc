package pipeline

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// A callback is the innermost end of an execution. Its implementations are
// function types: a func value is one pointer, so an interface holds it without
// allocating.
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

// ExecuteValue runs fn through p and returns what comes out, like
// [Pipeline.Execute], with a value. A value that comes with an error is
// returned with it.
//
// Strategies see the value as an any. A pointer, map, channel or func goes into
// an any as it is; any other T costs one allocation for each run of fn, as Go's
// conversion does, unless the pipeline has neither strategies nor a Listener.
// Return a pointer where that matters.
//
// A strategy that makes up a value of another type is a mistake in the program:
// the error is [ErrResultType] and names both types and the pipeline. Where the
// strategy also returns an error, that is returned and the value dropped. A
// strategy that returns (nil, nil) gives the zero T where T has a nil, and the
// error where it has none.
func ExecuteValue[T any](ctx context.Context, p *Pipeline, fn func(context.Context) (T, error)) (T, error) {
	var zero T
	if fn == nil {
		return zero, errNilCallback(p)
	}
	v := p.load()
	if v.bare {
		if ctx.Err() != nil {
			return zero, ContextError(ctx)
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

// checkNil tells whether value, which is no T, may stand for the zero T.
func checkNil[T any](p *Pipeline, value any) error {
	want := reflect.TypeFor[T]()
	if value == nil && hasNil(want.Kind()) {
		return nil
	}
	got := "nil"
	if value != nil {
		got = reflect.TypeOf(value).String()
	}
	return fmt.Errorf("%w: %swant %v, got %s", ErrResultType, prefixed("pipeline", p.Name()), want, got)
}

func hasNil(k reflect.Kind) bool {
	switch k {
	case reflect.Interface, reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return true
	default:
		return false
	}
}

func errNilCallback(p *Pipeline) error {
	if p.Name() == "" {
		return fmt.Errorf("pipeline: %w", errNoCallback)
	}
	return fmt.Errorf("pipeline: %s: %w", p.Name(), errNoCallback)
}

var errNoCallback = errors.New("the callback is nil")
