package weirgrpc

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/exchange"
)

// An outgoingCall is a call of a [Client] with all attempts at it. Unary calls and streams embed it.
type outgoingCall struct {
	exchange.Exchange[*clientAttempt]

	failed  func(code codes.Code) bool // see [ClientOptions.Failed]
	caller  context.Context            // the caller's
	method  string
	conn    *grpc.ClientConn
	options []grpc.CallOption // the caller's, without OnFinish
	finish  []func(error)     // the caller's functions of OnFinish, which are called once for all attempts
}

// outgoingKey asks a context for the method of the nearest call.
type outgoingKey struct{}

// OutgoingMethod returns the method of the call of a [Client] that a context belongs to, such as
// "/package.Service/Method", or "" if there is none. It is a key function for limiters in a pipeline:
//
//	ratelimit.NewPartitioned(buckets, weirgrpc.OutgoingMethod, nil)
func OutgoingMethod(ctx context.Context) string {
	method, _ := ctx.Value(outgoingKey{}).(string)
	return method
}

// begin prepares a call of the Client, and returns the context for its pipeline.
func (x *outgoingCall) begin(ctx context.Context, c *Client, method string, conn *grpc.ClientConn, options []grpc.CallOption) context.Context {
	x.Name, x.Repeat = "weirgrpc: the call", func() bool { return c.isIdempotent(method) }
	x.failed, x.caller, x.method, x.conn = c.failed, ctx, method, conn
	for _, option := range options {
		if o, ok := option.(grpc.OnFinishCallOption); ok {
			x.finish = append(x.finish, o.OnFinish)
		} else {
			x.options = append(x.options, option)
		}
	}
	return context.WithValue(ctx, outgoingKey{}, method)
}

// finished calls the caller's functions for the end of the call. As in grpc-go, they are not called for a call that an
// interceptor rejects.
func (x *outgoingCall) finished(err error) {
	if x.Begun() > 0 {
		for _, f := range x.finish {
			f(err)
		}
	}
}

// refusedOr returns the result and the error of the pipeline or, if the error is that of an attempt that was not made, the outcome
// of the attempt before.
func (x *outgoingCall) refusedOr(result any, err error) (any, error) {
	if ended := x.Ended(); exchange.IsRefusal(err) && len(ended) > 0 {
		return ended[len(ended)-1].outcome()
	}
	return result, err
}

// A clientAttempt is one try of a call.
type clientAttempt struct {
	call    *outgoingCall
	reply   any
	failure *StatusError // nil: it was successful
	header  metadata.MD
	trailer metadata.MD // nil: there was no stream on a connection; see unsent
	peer    peer.Peer
	over    atomic.Bool // grpc-go has called the attempt's OnFinish
}

// end records how the attempt ended.
func (a *clientAttempt) end(failure *StatusError) error {
	a.failure = failure
	return a.call.End(a, failure == nil || !failure.unprocessed)
}

// outcome returns what the strategies see of the attempt. A status that is no failure is a result.
func (a *clientAttempt) outcome() (any, error) {
	switch {
	case a.failure == nil:
		return a.reply, nil
	case a.failure.failed:
		return nil, a.failure
	default:
		return a.failure, nil
	}
}

// unsent reports whether the attempt certainly was not sent: grpc-go has ended it, so that over is true, without a stream on a
// connection. With a stream, grpc-go sets the Trailer of the call, at least to an empty map. If an interceptor drops the options,
// the trailer stays nil, too, but over is false. When over is true, the trailer no longer changes.
func (a *clientAttempt) unsent() bool { return a.over.Load() && a.trailer == nil }

// newStatusError returns the error of an attempt whose context is ctx. trailer is nil if it is not known.
func (a *clientAttempt) newStatusError(ctx context.Context, err error, trailer metadata.MD, unsent bool) *StatusError {
	x := a.call
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	if s.Code() == codes.OK { // an error that says that it is none
		s = status.New(codes.Unknown, err.Error())
	}
	e := &StatusError{err: err, status: s, attempt: a, pushback: pushbackOf(trailer, s)}
	if !e.pushback.asked && !e.pushback.never {
		e.pushback.wait, e.pushback.asked = pipeline.RetryAfter(err) // of an interceptor inside this one
	}
	if ended := ctx.Err(); ended != nil && (isContextCode(s.Code()) || errors.Is(err, ended)) {
		e.ended = pipeline.ContextError(ctx)
	}
	e.failed = e.ended != nil || x.failed(s.Code())
	e.unprocessed = !e.pushback.never && e.isUnprocessed(unsent)
	e.retryable = x.caller.Err() == nil && !e.pushback.never && e.isRetryable()
	return e
}

// A clientUnary is a unary call with all attempts at it.
type clientUnary struct {
	outgoingCall

	request  any
	reply    any // the caller's, which the first attempt fills in; others have their own
	newReply func() any
	invoker  grpc.UnaryInvoker
	outputs  []grpc.CallOption // the caller's Header, Trailer and Peer, which the attempt that decides fills in
}

// run makes the call. It returns when all attempts have ended, because they use the request and the reply.
func (x *clientUnary) run(ctx context.Context, p *pipeline.Pipeline) error {
	defer x.Settle() // also if the pipeline panics
	x.Overlap, x.Wait = true, true
	x.options = slices.DeleteFunc(x.options, func(option grpc.CallOption) bool {
		switch option.(type) {
		case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption:
			x.outputs = append(x.outputs, option)
			return true
		default:
			return false
		}
	})
	if m, ok := x.reply.(proto.Message); ok { // the type now, because an attempt can be writing the reply later
		t := m.ProtoReflect().Type()
		x.newReply = func() any { return t.New().Interface() }
	} else if t := reflect.TypeOf(x.reply); t != nil && t.Kind() == reflect.Pointer {
		x.newReply = func() any { return reflect.New(t.Elem()).Interface() }
	} else {
		return status.Errorf(codes.Internal, "weirgrpc: the reply is a %T, which is no pointer", x.reply)
	}
	result, err := pipeline.ExecuteValue(ctx, p, x.send)
	x.Settle()
	result, err = x.refusedOr(result, err)
	if err == nil {
		err = x.deliver(result)
	}
	if err != nil {
		if failure, ok := errors.AsType[*StatusError](err); ok && failure.attempt != nil && failure.attempt.call == &x.outgoingCall {
			x.setOutputs(failure.attempt)
		}
		err = callerError(x.caller, err)
	}
	x.finished(err)
	return err
}

// send makes one attempt. Strategies can run it many times, at the same time, and after the pipeline has returned.
func (x *clientUnary) send(ctx context.Context) (any, error) {
	number, err := x.Begin()
	if err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			x.Abort()
		}
	}()
	a := &clientAttempt{call: &x.outgoingCall, reply: x.reply}
	if number > 0 {
		a.reply = x.newReply()
	}
	options := append(slices.Clip(x.options), grpc.Header(&a.header), grpc.Trailer(&a.trailer), grpc.Peer(&a.peer),
		grpc.OnFinish(func(error) { a.over.Store(true) }))
	var failure *StatusError
	if err = x.invoker(ctx, x.method, x.request, a.reply, x.conn, options...); err != nil {
		failure = a.newStatusError(ctx, err, a.trailer, a.unsent())
	}
	returned = true
	if err = a.end(failure); err != nil {
		return nil, err
	}
	return a.outcome()
}

// deliver makes the result of the pipeline the caller's reply, or returns the error that it stands for.
func (x *clientUnary) deliver(result any) error {
	if failure, ok := result.(*StatusError); ok && failure != nil {
		return failure
	}
	source, target := reflect.ValueOf(result), reflect.ValueOf(x.reply)
	switch {
	case !source.IsValid() || source.Kind() == reflect.Pointer && source.IsNil():
		return errNoReply
	case source.Type() != target.Type():
		return status.Errorf(codes.Internal, "weirgrpc: the pipeline returned a %T, want %T", result, x.reply)
	}
	if source.Pointer() != target.Pointer() {
		if message, ok := x.reply.(proto.Message); ok {
			proto.Reset(message)
			proto.Merge(message, result.(proto.Message)) //nolint:forcetypeassert // it has the type of the reply
		} else {
			target.Elem().Set(source.Elem())
		}
	}
	for _, a := range x.Ended() {
		if a.failure == nil && a.reply == result {
			x.setOutputs(a)
		}
	}
	return nil
}

// setOutputs sets what the caller's Header, Trailer and Peer options point to. It does nothing if there was no stream on a
// connection, as grpc-go.
func (x *clientUnary) setOutputs(a *clientAttempt) {
	if a.trailer == nil {
		return
	}
	for _, option := range x.outputs {
		switch o := option.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = a.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		case grpc.PeerCallOption:
			*o.PeerAddr = a.peer
		}
	}
}

// A StatusError is the status of an attempt of a [Client], as the strategies and the caller get it. It wraps the error
// that grpc-go has returned, and has its text. If the context of the attempt has ended, it also matches the context's
// error and cause. Only a Client makes StatusErrors with a status.
type StatusError struct {
	err         error          // what the invoker has returned
	status      *status.Status // of err
	ended       error          // the error of the attempt's context, if it has ended
	pushback    serverPushback
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
func (e *StatusError) RetryAfter() (d time.Duration, ok bool) {
	return e.pushback.wait, e.pushback.asked
}

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
		return unsent || e.pushback.asked
	case code == codes.ResourceExhausted:
		return e.pushback.asked
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

// A serverPushback says whether, and when, a server wants another attempt.
type serverPushback struct {
	wait  time.Duration
	asked bool // the server asks for another attempt after wait
	never bool // the server asks for no other attempt
}

// pushbackOf returns what the trailer says, or what the details of the status say if the trailer says nothing. A trailer that
// is negative, no number of 32 bits, or there twice asks for no other attempt.
func pushbackOf(trailer metadata.MD, s *status.Status) serverPushback {
	if lines := trailer[pushbackTrailer]; len(lines) > 0 {
		ms, err := strconv.ParseInt(lines[0], 10, 32)
		if len(lines) > 1 || err != nil || ms < 0 {
			return serverPushback{never: true}
		}
		return serverPushback{wait: time.Duration(ms) * time.Millisecond, asked: true}
	}
	wait, ok := retryInfoOf(s)
	return serverPushback{wait: wait, asked: ok}
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
