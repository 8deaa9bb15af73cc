package weirgrpc

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
)

// A StatusError is the status of an attempt of a [Client], as the strategies and the caller get it. It wraps the error
// that grpc-go has returned, and has its text. If the context of the attempt has ended, it also matches the context's
// error and cause. Only a Client makes StatusErrors with a status.
type StatusError struct {
	err         error          // what the invoker has returned
	status      *status.Status // of err
	ended       error          // the error of the attempt's context, if it has ended
	says        comeback
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

// RetryAfter returns the wait that the server asks for. ok is false if it asks for none.
func (e *StatusError) RetryAfter() (d time.Duration, ok bool) { return e.says.wait, e.says.asked }

// ErrorType returns the code, such as "UNAVAILABLE", which telemetry reports as error.type.
func (e *StatusError) ErrorType() string { return codeText(e.status.Code()) }

// Retryable reports whether the call can be made again. It returns true in three cases:
//
//   - The call was not sent: the code is UNAVAILABLE, and there was no connection.
//   - The server has rejected the call and asks for another attempt: the code is RESOURCE_EXHAUSTED or UNAVAILABLE, with
//     a grpc-retry-pushback-ms or a RetryInfo. A limiter does so before the call reaches its handler.
//   - The method is idempotent, and the code is UNAVAILABLE or DEADLINE_EXCEEDED. For other codes, set the Handle of the retry.
//
// After UNAVAILABLE alone, the server may have processed the call, and the connection may have been lost afterwards.
// RESOURCE_EXHAUSTED alone can mean a quota that is used up, or a message that is too large, so that a retry would fail
// again. If grpc-retry-pushback-ms is negative or invalid, or if the caller's context has ended, no call is retryable.
func (e *StatusError) Retryable() bool { return e.retryable }

// isUnprocessed reports whether the server has certainly not processed the attempt.
func (e *StatusError) isUnprocessed(unsent bool) bool {
	switch code := e.status.Code(); {
	case pipeline.NotCalled(e.err): // a strategy or an interceptor further inside has rejected the call
		return true
	case code == codes.Unavailable:
		return unsent || e.says.asked
	case code == codes.ResourceExhausted:
		return e.says.asked
	default:
		return false
	}
}

func (e *StatusError) isRetryable() bool {
	if retryable, known := pipeline.Retryable(e.err); known && !retryable {
		return false // an interceptor inside this one has decided
	}
	code := e.status.Code()
	return e.unprocessed || (code == codes.Unavailable || code == codes.DeadlineExceeded) && e.attempt.call.Repeat()
}

// codeText returns the name of the code on the wire. A server can send any number, and a handler return any: all those
// without a name have one text, so that they cannot fill the metrics.
func codeText(c codes.Code) string {
	if name, ok := code.Code_name[int32(min(c, math.MaxInt32))]; ok { //nolint:gosec // it fits
		return name
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
	default:
		return codes.Unknown
	}
}

func isContextCode(c codes.Code) bool { return c == codes.Canceled || c == codes.DeadlineExceeded }

var errNoReply = status.Error(codes.Internal, "weirgrpc: the pipeline returned neither a reply nor an error")

// A comeback is what a server says about another attempt.
type comeback struct {
	wait  time.Duration
	asked bool // the server asks for another attempt after wait
	never bool // the server asks for no other attempt
}

// comebackOf returns what the trailer says, or what the details of the status say if the trailer says nothing. A trailer that
// is negative, no number of 32 bits, or there twice asks for no other attempt.
func comebackOf(trailer metadata.MD, s *status.Status) comeback {
	if lines := trailer[pushbackTrailer]; len(lines) > 0 {
		ms, err := strconv.ParseInt(lines[0], 10, 32)
		if len(lines) > 1 || err != nil || ms < 0 {
			return comeback{never: true}
		}
		return comeback{wait: time.Duration(ms) * time.Millisecond, asked: true}
	}
	wait, ok := retryInfoOf(s)
	return comeback{wait: wait, asked: ok}
}

// retryInfoOf returns the delay of the first RetryInfo in the details of the status. A RetryInfo without a delay asks for
// another attempt at once. One with an invalid or negative delay says nothing.
func retryInfoOf(s *status.Status) (wait time.Duration, ok bool) {
	for _, detail := range s.Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			delay := info.GetRetryDelay()
			if delay != nil && (delay.CheckValid() != nil || delay.AsDuration() < 0) {
				return 0, false
			}
			return delay.AsDuration(), true
		}
	}
	return 0, false
}
