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

// errorType says of what kind err is, in few different words: the attribute
// error.type.
//
//   - What an error of the tree says itself, with a method ErrorType() string.
//   - "context.DeadlineExceeded" and "context.Canceled" for whatever is one of
//     them.
//   - Else the type of the first error that is not just a wrapper of package fmt or
//     errors, as Go writes it: "*net.OpError". What errors.New made has no type
//     that would say anything; those of this module go by their name, as
//     "pipeline.ErrClosed".
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
	if of == plainError { // else it might be of a type that is no key of a map
		if name, ok := sentinels[err]; ok {
			return name
		}
	}
	return of.String()
}

// A typedError is asked by OpenTelemetry's own instrumentation, too.
type typedError interface {
	error
	ErrorType() string
}

var (
	plainError = reflect.TypeOf(errors.New(""))
	wrapError  = reflect.TypeOf(fmt.Errorf("%w", errors.ErrUnsupported))
	wrapErrors = reflect.TypeOf(fmt.Errorf("%w %w", errors.ErrUnsupported, errors.ErrUnsupported))
	joinError  = reflect.TypeOf(errors.Join(errors.ErrUnsupported))
)

// unwrapped goes down to the first error that is more than a wrapper.
func unwrapped(err error) error {
	for {
		switch reflect.TypeOf(err) {
		case wrapError:
			inner := errors.Unwrap(err)
			if inner == nil { // %w of a nil
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
			return err
		}
	}
}

var sentinels = map[error]string{
	pipeline.ErrRejected:   "pipeline.ErrRejected",
	pipeline.ErrClosed:     "pipeline.ErrClosed",
	pipeline.ErrResultType: "pipeline.ErrResultType",
	pipeline.ErrAborted:    "pipeline.ErrAborted",
	limiter.ErrClosed:      "limiter.ErrClosed",
	limiter.ErrPermitCount: "limiter.ErrPermitCount",
	weir.ErrInvalidOptions: "weir.ErrInvalidOptions",
}
