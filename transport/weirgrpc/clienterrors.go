package weirgrpc

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/unsent"
)

// A StatusError is the status of an attempt of a [Client], as the strategies and the caller get it. It wraps the error
// that grpc-go has returned, and has its text. If the context of the attempt has ended, it also matches the context's
// error and cause. Only a Client makes StatusErrors with a status.
type StatusError struct {
	// Method is the method of the call, such as "/package.Service/Method".
	Method string

	err         error          // what the invoker has returned
	status      *status.Status // of err
	ended       error          // the error of the attempt's context, if it has ended
	says        comeback       // its wait is cut to MaxRetryAfter
	retryable   bool
	unprocessed bool // the server has certainly not processed the attempt
	failed      bool // strategies see it as an error
	attempt     *clientAttempt
}

// Error returns the text of grpc-go.
func (e *StatusError) Error() string {
	if e.err == nil {
		return "weirgrpc: no status"
	}
	return e.err.Error()
}

// Unwrap returns the error of grpc-go.
func (e *StatusError) Unwrap() error { return e.err }

// Is reports whether target is the error or the cause of the attempt's context, if that has ended.
func (e *StatusError) Is(target error) bool { return e.ended != nil && errors.Is(e.ended, target) }

// GRPCStatus returns the status, for [status.FromError].
func (e *StatusError) GRPCStatus() *status.Status { return e.status }

// RetryAfter returns the wait that the server asks for, up to [ClientOptions.MaxRetryAfter]. ok is false if it asks for
// none.
func (e *StatusError) RetryAfter() (d time.Duration, ok bool) { return e.says.wait, e.says.asked }

// ErrorType returns the code, such as "UNAVAILABLE", which telemetry reports as error.type.
func (e *StatusError) ErrorType() string { return codeText(e.status.Code()) }

// Retryable reports whether the call can be made again. It returns true in three cases:
//
//   - The call was not sent: the code is UNAVAILABLE, and there was no connection.
//   - The server has rejected the call and asks for another attempt: the code is RESOURCE_EXHAUSTED or UNAVAILABLE, with
//     a grpc-retry-pushback-ms or a RetryInfo. A limiter does so before the call reaches its handler.
//   - The method is idempotent, and the code is among [ClientOptions.RetryCodes].
//
// After UNAVAILABLE alone, the server may have processed the call, and the connection may have been lost afterwards.
// RESOURCE_EXHAUSTED alone can mean a quota that is used up, or a message that is too large, so that a retry would fail
// again. If grpc-retry-pushback-ms is negative or invalid, or if the caller's context has ended, no call is retryable.
func (e *StatusError) Retryable() bool { return e.retryable }

// isOf reports whether the error is about an attempt of x.
func (e *StatusError) isOf(x *outgoingCall) bool { return e.attempt != nil && e.attempt.call == x }

// Retryable reports whether an attempt that ended with err can be followed by another one. It is for retry.Options.Handle,
// so that the retry does not wait before an attempt that the [Client] would not make. It returns false for
//
//   - a nil error;
//   - a [*StatusError] whose Retryable method returns false;
//   - a [*timeout.Error] for such a StatusError: it cut off an attempt of a method that is not idempotent;
//   - errors that match [context.Canceled].
//
// It returns true for all other errors, such as the rejection of a limiter inside the retry.
func Retryable(_ any, err error) bool {
	if err == nil {
		return false
	}
	if retryable, known := pipeline.Retryable(err); known {
		return retryable
	}
	return !errors.Is(err, context.Canceled)
}

// codeTexts are the names of the codes on the wire.
var codeTexts = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
	"DATA_LOSS", "UNAUTHENTICATED",
}

// codeText returns the name of the code. A server can send any number, and a handler return any: all those without a name
// have one text, so that they cannot fill the metrics.
func codeText(c codes.Code) string {
	if int64(c) < int64(len(codeTexts)) {
		return codeTexts[c]
	}
	return "_OTHER"
}

// A callError is an error of a strategy with the status that the caller sees.
type callError struct {
	error
	status *status.Status
}

func (e *callError) Unwrap() error              { return e.error }
func (e *callError) GRPCStatus() *status.Status { return e.status }

// callerError returns err with a status. ctx is the context of the caller.
func callerError(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		if s, ok := err.(*StatusError); ok && isContextCode(s.status.Code()) { //nolint:errorlint // an outer error hides the status
			return s
		}
		return &callError{err, status.New(status.FromContextError(ended).Code(), err.Error())}
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok { // status.FromError takes this one as it is
		return err
	}
	if failure, ok := errors.AsType[*StatusError](err); ok && failure.status != nil {
		return &callError{err, failure.status} // status.FromError would put the text of err in place of the server's message
	}
	if s, ok := status.FromError(err); ok {
		return &callError{err, s} // with the details of the status that err wraps
	}
	return &callError{err, status.New(codeOf(err), err.Error())}
}

// codeOf returns the code of an error that has none.
func codeOf(err error) codes.Code {
	if _, ok := errors.AsType[*timeout.Error](err); ok {
		return codes.DeadlineExceeded
	}
	if _, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		return codes.ResourceExhausted
	}
	switch {
	case errors.Is(err, pipeline.ErrRejected), errors.Is(err, pipeline.ErrClosed), pipeline.NotCalled(err):
		return codes.Unavailable
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, errNoReply), errors.Is(err, errReplyType), errors.Is(err, errContext), errors.Is(err, pipeline.ErrResultType):
		return codes.Internal
	default:
		return codes.Unknown
	}
}

func isContextCode(c codes.Code) bool { return c == codes.Canceled || c == codes.DeadlineExceeded }

var (
	errSentBefore    = &unsent.Error{Text: "weirgrpc: the call has been sent, and must not be sent again"}
	errTooLate       = &unsent.Error{Text: "weirgrpc: the call has ended"}
	errStreamOpen    = &unsent.Error{Text: "weirgrpc: the stream is open, and cannot be opened again"}
	errAtTheSameTime = &unsent.Error{Text: "weirgrpc: the call is being sent, and must not be sent twice at the same time", Later: true}

	errNoReply   = errors.New("weirgrpc: the pipeline returned neither a reply nor an error")
	errReplyType = errors.New("weirgrpc: the pipeline returned a reply of the wrong type")
	errContext   = errors.New("weirgrpc: a strategy ran the call with a context that is not derived from the call's")
)
