package weirgrpc

import (
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/admission"
	cause "github.com/weir-go/weir/transport/internal/status"
)

// A CallRejectedError is the error of a call that a policy of a server does not admit, or of a stream that ends because a
// policy does not admit a message. [errors.Is] matches it with [pipeline.ErrRejected].
//
// The client gets its status and, if RetryAfter is known, a google.rpc.RetryInfo in the status and the trailer
// grpc-retry-pushback-ms with that wait. The trailer is negative if the call costs more than the limiter can ever grant.
// The client does not get the names of policies and limiters, nor the errors of limiters.
type CallRejectedError struct {
	Policy string        // the name of the policy
	Code   codes.Code    // the code of the status
	Lease  limiter.Lease // the limiter's answer; the zero Lease if Err has the cause
	// Err is nil if a limiter rejected the call; otherwise it is the error of the limiter
	// or the pipeline.
	Err error

	retryAfter time.Duration // 0: not known
	status     *status.Status
	trailer    metadata.MD
	sent       atomic.Bool // the trailer has been sent
}

// Error returns the policy and the cause.
func (e *CallRejectedError) Error() string {
	switch reason := e.Lease.Reason(); {
	case e.Err != nil:
		return e.Err.Error()
	case reason != "":
		return fmt.Sprintf("weirgrpc: policy %s: rejected: %s", e.Policy, reason)
	default:
		return fmt.Sprintf("weirgrpc: policy %s: rejected", e.Policy)
	}
}

// Unwrap returns Err.
func (e *CallRejectedError) Unwrap() error { return e.Err }

// Is reports whether target is [pipeline.ErrRejected].
func (e *CallRejectedError) Is(target error) bool { return target == pipeline.ErrRejected }

// RetryAfter returns after which time the call can succeed. ok is false if that is not known.
func (e *CallRejectedError) RetryAfter() (d time.Duration, ok bool) {
	return e.retryAfter, e.retryAfter > 0
}

// GRPCStatus returns the status that the client gets.
func (e *CallRejectedError) GRPCStatus() *status.Status { return e.status }

// NotCalled returns true, so that a circuit breaker does not count the rejection: the handler was not called.
func (e *CallRejectedError) NotCalled() bool { return true }

// Retryable returns false: the client decides about another attempt.
func (e *CallRejectedError) Retryable() bool { return false }

// codeFor returns the code of a call that the policy does not admit.
func (p *preparedPolicy) codeFor(c cause.Cause) codes.Code {
	if own := p.options.Code; own != codes.OK && c.Rejected() {
		return own
	}
	return codes.Code(c.GRPC())
}

// newRejectedError returns the error of a rejection, with its status.
func newRejectedError(p *preparedPolicy, code codes.Code, rejection *admission.Rejection) *CallRejectedError {
	e := &CallRejectedError{
		Policy: p.Name, Code: code, Lease: rejection.Lease, Err: rejection.Err,
		retryAfter: rejection.RetryAfter,
	}
	if wait := cause.Pushback(rejection.RetryAfter, rejection.Never); wait != "" {
		e.trailer = metadata.MD{pushbackTrailer: {wait}}
	}
	e.status = status.New(code, cause.Message(uint32(code)))
	if e.retryAfter > 0 {
		if s, err := e.status.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.retryAfter)}); err == nil {
			e.status = s
		}
	}
	return e
}

// pushbackTrailer is the metadata with which a server tells a client when to try again, or not to; see gRFC A6.
const pushbackTrailer = "grpc-retry-pushback-ms"

// A timedOut is the error of a call whose handler has not returned within [Policy.Timeout], and the [context.Cause] of its
// context.
type timedOut struct{ err *timeout.Error }

func (e timedOut) Error() string { return e.err.Error() }
func (e timedOut) Unwrap() error { return e.err }

// GRPCStatus returns the status that the client gets.
func (e timedOut) GRPCStatus() *status.Status {
	return status.New(codes.DeadlineExceeded, cause.Message(cause.DeadlineExceeded))
}
