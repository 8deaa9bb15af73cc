package telemetry

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// errorType returns the attribute error.type of err, which has few different values:
//
//   - the result of a method ErrorType() string of an error in the tree;
//   - else "context.DeadlineExceeded" or "context.Canceled" if err is one of them;
//   - else the name of the first error that is not a wrapper of package fmt, errors or the strategies, if it is a variable
//     of this module, such as "pipeline.ErrClosed";
//   - else its type, such as "*net.OpError".
func errorType(err error) string {
	if e, ok := errors.AsType[typedError](err); ok {
		if name := e.ErrorType(); name != "" {
			return name
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "context.DeadlineExceeded"
	case errors.Is(err, context.Canceled):
		return "context.Canceled"
	}
	err = unwrapped(err)
	of := reflect.TypeOf(err)
	if of == plainError || of == closedError { // an error of another type may not be comparable, and then a map panics
		if name, ok := sentinels[err]; ok {
			return name
		}
	}
	return of.String()
}

// A typedError has the method ErrorType, which the instrumentation libraries of OpenTelemetry look for, too.
type typedError interface {
	error
	ErrorType() string
}

var (
	plainError  = reflect.TypeOf(errors.New(""))
	closedError = reflect.TypeOf(pipeline.ErrClosed)
	wrapError   = reflect.TypeOf(fmt.Errorf("%w", errors.ErrUnsupported))
	wrapErrors  = reflect.TypeOf(fmt.Errorf("%w %w", errors.ErrUnsupported, errors.ErrUnsupported))
	joinError   = reflect.TypeOf(errors.Join(errors.ErrUnsupported))
)

// unwrapped returns the first error of the tree that is more than a wrapper.
func unwrapped(err error) error {
	for {
		switch reflect.TypeOf(err) {
		case wrapError:
			inner := errors.Unwrap(err)
			if inner == nil { // %w of nil
				return err
			}
			err = inner
		case wrapErrors, joinError:
			inner := err.(interface{ Unwrap() []error }).Unwrap()
			if len(inner) == 0 {
				return err
			}
			err = inner[0]
		default:
			a, ok := err.(addition)
			if !ok || a.Cause() == nil {
				return err
			}
			err = a.Cause()
		}
	}
}

// An addition is an error of the strategies that only adds to its cause, such as how many attempts there were. Other errors
// with a method Cause, as those of pkg/errors, are types that a program can want to see.
type addition interface {
	NotCalled() bool
	Cause() error
}

// sentinels are the error variables of this module, which all have the same type.
var sentinels = map[error]string{
	pipeline.ErrRejected:   "pipeline.ErrRejected",
	pipeline.ErrClosed:     "pipeline.ErrClosed",
	pipeline.ErrResultType: "pipeline.ErrResultType",
	pipeline.ErrAborted:    "pipeline.ErrAborted",
	limiter.ErrClosed:      "limiter.ErrClosed",
	limiter.ErrPermitCount: "limiter.ErrPermitCount",
	weir.ErrInvalidOptions: "weir.ErrInvalidOptions",
}
