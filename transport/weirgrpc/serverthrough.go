package weirgrpc

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/exchange"
	cause "github.com/weir-go/weir/transport/internal/status"
)

// A HandlerError tells strategies of a [ByPipeline] that a handler has failed. Clients get the error of the handler.
type HandlerError struct {
	Code codes.Code // the code of the handler's error
	Err  error      // the handler's error
}

// Error returns the handler's error.
func (e *HandlerError) Error() string { return "weirgrpc: the handler failed: " + e.Err.Error() }

// Unwrap returns Err.
func (e *HandlerError) Unwrap() error { return e.Err }

// ErrorType returns the code, which telemetry reports as error.type, such as "UNAVAILABLE".
func (e *HandlerError) ErrorType() string { return codeText(e.Code) }

// Errors of a pipeline around a handler. Strategies see them, clients do not.
var (
	// errRunAgain: a strategy ran the handler of a stream again, or a handler while it was
	// running.
	errRunAgain error = exchange.Refusal("weirgrpc: the handler cannot run again")
	// errNoAnswer: a strategy ended the execution without an error, without running
	// the handler and without a response as the value.
	errNoAnswer = fmt.Errorf("weirgrpc: the pipeline ended without an answer: %w", pipeline.ErrRejected)
)

// A handlerRun is one call whose handler runs in a pipeline, with all attempts. The handler never runs twice at once. run waits for
// the handler even if the strategies do not, because the call gives back its permits, and ends its stream, when run returns.
type handlerRun struct {
	next   func(ctx context.Context) (any, error) // the policies after the pipeline, and the handler
	once   bool                                   // the handler is that of a stream, which cannot run again
	repeat func()                                 // is called before each attempt but the first
	failed func(code codes.Code) bool             // see [LimitsOptions.Failed]

	attempts exchange.Exchange[struct{}] // at running the handler
	err      error                       // the error of the last attempt: of the handler, or of a policy
	seen     error                       // err as strategies saw it
}

// run runs the handler in the pipeline of p.
func (x *handlerRun) run(ctx context.Context, p *preparedPolicy) (response any, err error) {
	x.attempts.Repeat, x.attempts.Wait = x.again, true
	response, err = x.execute(ctx, p.Limit.Pipeline)
	switch {
	case err == nil && response != nil && !x.once:
		return response, nil
	case x.err != nil && (err == nil || errors.Is(err, errRunAgain)):
		return nil, x.err
	case err == nil && x.attempts.Begun() > 0: // a stream, or a handler that answers with nil
		return nil, nil
	case err == nil:
		err = errNoAnswer
	}
	return nil, x.failure(ctx, p, err)
}

// again reports whether another attempt may follow the last one, and prepares the call for it.
func (x *handlerRun) again() bool {
	if x.once {
		return false
	}
	x.repeat()
	return true
}

// execute runs the handler in the pipeline, and returns when no attempt is running any more.
func (x *handlerRun) execute(ctx context.Context, p *pipeline.Pipeline) (response any, err error) {
	defer x.attempts.Settle()
	return pipeline.ExecuteValue(ctx, p, x.attempt)
}

// attempt is the callback of the pipeline: it runs the handler.
func (x *handlerRun) attempt(ctx context.Context) (response any, err error) {
	if _, err := x.attempts.Begin(); err != nil {
		return nil, errRunAgain
	}
	defer x.attempts.Abort() // its outcome is not needed
	response, err = x.next(ctx)
	x.err, x.seen = err, nil
	if err == nil {
		return response, nil
	}
	if isPolicyError(err) {
		x.seen = err
		return nil, err
	}
	code := status.Code(err)
	if code == codes.Unknown {
		code = status.FromContextError(err).Code() // of an error of a context that the handler returns as it is
	}
	if x.failed(code) {
		x.seen = &HandlerError{Code: code, Err: err}
		if x.once {
			x.seen = exchange.Final(x.seen)
		}
	}
	return nil, x.seen
}

// isPolicyError reports whether err is a decision of a policy, and not an error of the handler.
func isPolicyError(err error) bool {
	switch err.(type) { //nolint:errorlint // what wraps one is the handler's error
	case *CallRejectedError, timedOut:
		return true
	}
	return false
}

// failure returns the error of the call for an error of the pipeline of p.
func (x *handlerRun) failure(ctx context.Context, p *preparedPolicy, err error) error {
	if x.seen != nil && errors.Is(err, x.seen) {
		return x.err
	}
	after, _ := pipeline.RetryAfter(err)
	rejection := &admission.Rejection{RetryAfter: max(after, 0), Err: fmt.Errorf("weirgrpc: policy %s: %w", p.Name, err)}
	if limited, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		rejection.Lease = limited.Lease
	}
	rejection.Never = errors.Is(err, limiter.ErrPermitCount)
	code, own := pipelineCode(ctx, p, err)
	failed := newRejectedError(p, code, rejection)
	if own != nil {
		failed.status = own
	}
	return failed
}

// pipelineCode returns the code for an error of the pipeline of p. own is the status that a strategy has given its
// error, if it has.
func pipelineCode(ctx context.Context, p *preparedPolicy, err error) (code codes.Code, own *status.Status) {
	c := cause.Of(ctx, err)
	if withStatus, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok && c != cause.TimedOut && !c.Ended() {
		if own = withStatus.GRPCStatus(); own.Code() != codes.OK {
			return own.Code(), own
		}
	}
	return p.codeFor(c), nil
}
