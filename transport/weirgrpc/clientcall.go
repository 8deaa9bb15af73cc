package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/pipeline"
)

// An outgoingCall is what unary calls and streams of a [Client] have in common. It is also the context that the pipeline
// runs with, so that strategies find it.
type outgoingCall struct {
	context.Context // the caller's

	client    *Client
	method    string
	conn      *grpc.ClientConn // can be nil in a test of the program
	alone     bool             // the connection has grpc-go's retries disabled
	options   []grpc.CallOption
	outputs   []grpc.CallOption         // the Header, Trailer and Peer of a unary call, which each attempt has for itself
	finishers []grpc.OnFinishCallOption // the caller's, which are called once for all attempts

	mu         sync.Mutex
	sent       int            // attempts that were made
	running    int            // attempts that have not ended
	processed  bool           // the server may have processed an attempt
	settled    bool           // the pipeline has returned
	idle       chan struct{}  // closed when running is 0; nil if close does not wait
	idempotent int8           // 1 or -1; 0: the function of the options has not been asked
	last       *clientAttempt // the attempt that ended last
}

// outgoingKey asks a context for the nearest call.
type outgoingKey struct{}

// String returns only what never changes: fmt would read all fields, and race with attempts.
func (x *outgoingCall) String() string { return fmt.Sprintf("%v.weirgrpc", x.Context) }

func (x *outgoingCall) outgoing() *outgoingCall { return x }

func outgoingFrom(ctx context.Context) *outgoingCall {
	if x, ok := ctx.Value(outgoingKey{}).(interface{ outgoing() *outgoingCall }); ok {
		return x.outgoing()
	}
	return nil
}

// OutgoingMethod returns the method of the call of a [Client] that a context belongs to, such as
// "/package.Service/Method", or "" if there is none. It is a key function for limiters in a pipeline:
//
//	ratelimit.NewPartitioned(buckets, weirgrpc.OutgoingMethod, nil)
func OutgoingMethod(ctx context.Context) string {
	if x := outgoingFrom(ctx); x != nil {
		return x.method
	}
	return ""
}

// OutgoingTarget returns the target of the connection on which the call of a [Client] is made, as it was passed to
// [grpc.NewClient], or "" if the context belongs to no call. It is a key function for a Client of several connections.
func OutgoingTarget(ctx context.Context) string {
	if x := outgoingFrom(ctx); x != nil && x.conn != nil {
		return x.conn.Target()
	}
	return ""
}

// setOptions takes the options that attempts must not share out of the caller's. shareOutputs: the attempts can share
// Header, Trailer and Peer.
func (x *outgoingCall) setOptions(options []grpc.CallOption, shareOutputs bool) {
	x.options = options
	for i, option := range options {
		switch o := option.(type) {
		case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption:
			if shareOutputs {
				continue
			}
			x.outputs = append(x.outputs, o)
		case grpc.OnFinishCallOption:
			x.finishers = append(x.finishers, o)
		default:
			continue
		}
		if len(x.outputs)+len(x.finishers) == 1 { // the first: from here on the options are a copy
			x.options = slices.Clone(options)
		}
		x.options[i] = grpc.EmptyCallOption{}
	}
}

// finish calls the caller's functions for the end of the call.
func (x *outgoingCall) finish(err error) {
	if x.sent == 0 {
		return // as grpc-go, which does not call them for a call that an interceptor rejects
	}
	for _, o := range x.finishers {
		o.OnFinish(err)
	}
}

// isIdempotentLocked asks the function of the options at most once, and only if it matters.
func (x *outgoingCall) isIdempotentLocked() bool {
	if x.idempotent == 0 {
		x.idempotent = -1
		if x.client.options.Idempotent(x.method) {
			x.idempotent = 1
		}
	}
	return x.idempotent == 1
}

// refusalLocked returns why there must not be another attempt now, or nil.
func (x *outgoingCall) refusalLocked() error {
	switch {
	case x.settled:
		return errTooLate
	case x.sent == 0:
		return nil
	case x.running > 0 && !x.isIdempotentLocked():
		return errAtTheSameTime
	case x.processed && !x.isIdempotentLocked():
		return errSentBefore
	default:
		return nil
	}
}

// beginLocked counts an attempt that begins.
func (x *outgoingCall) beginLocked(a *clientAttempt) {
	a.call, a.number = x, x.sent
	x.sent++
	x.running++
}

// endLocked counts an attempt that has ended. It returns false if the pipeline has returned already.
func (x *outgoingCall) endLocked(a *clientAttempt) bool {
	if a.failure == nil || !a.failure.unprocessed {
		x.processed = true
	}
	x.stopLocked()
	if x.settled {
		return false
	}
	x.last = a
	return true
}

// abortLocked counts an attempt that has panicked or left its goroutine. It has no outcome.
func (x *outgoingCall) abortLocked() {
	x.processed = true
	x.stopLocked()
}

func (x *outgoingCall) stopLocked() {
	x.running--
	if x.running == 0 && x.idle != nil {
		close(x.idle)
	}
}

// close lets no other attempt begin, and waits for running attempts. An attempt reads the caller's request and writes the
// caller's reply, which the caller can use as soon as the call has returned.
func (x *outgoingCall) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settled = true
	if x.running > 0 {
		x.idle = make(chan struct{})
		x.mu.Unlock()
		<-x.idle
		x.mu.Lock()
	}
}

// An ending is what is known of the end of an attempt, apart from its error.
type ending struct {
	trailer metadata.MD
	unsent  bool // the attempt certainly was not sent
}

// newStatusError returns the error of an attempt whose context is ctx.
func (x *outgoingCall) newStatusError(ctx context.Context, a *clientAttempt, err error, end ending) *StatusError {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	if s.Code() == codes.OK { // an error that says that it is none
		s = status.New(codes.Unknown, err.Error())
	}
	options := &x.client.options
	e := &StatusError{Method: x.method, err: err, status: s, attempt: a, says: comebackOf(end.trailer, s)}
	if !e.says.asked && !e.says.never {
		e.says.wait, e.says.asked = pipeline.RetryAfter(err) // of an interceptor inside this one
	}
	e.says.wait = min(e.says.wait, options.MaxRetryAfter)
	if ended := ctx.Err(); ended != nil && (isContextCode(s.Code()) || errors.Is(err, ended)) {
		e.ended = pipeline.ContextError(ctx)
	}
	e.failed = e.ended != nil || options.Failed(s.Code())
	e.unprocessed = !e.says.never && e.isUnprocessed(end.unsent)
	e.retryable = x.Err() == nil && !e.says.never && x.isRetryable(e)
	return e
}

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

func (x *outgoingCall) isRetryable(e *StatusError) bool {
	if retryable, known := pipeline.Retryable(e.err); known && !retryable {
		return false // an interceptor inside this one has decided
	}
	if e.unprocessed {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Contains(x.client.options.RetryCodes, e.status.Code()) && x.isIdempotentLocked()
}
