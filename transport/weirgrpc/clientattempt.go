package weirgrpc

import (
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// A clientAttempt is one try of a call.
type clientAttempt struct {
	call    *outgoingCall
	number  int          // from 0
	reply   any          // of a unary call
	failure *StatusError // nil: it was successful, or it has not ended

	hasCallers bool // the reply is the caller's, not the attempt's own

	trailer metadata.MD     // nil: there was no stream on a connection; see unsent
	ended   atomic.Bool     // grpc-go has called the attempt's OnFinish
	outputs *attemptOutputs // nil: the caller wants none

	optionsArray [6]grpc.CallOption // the first array of the options, which saves an allocation
}

// attemptOutputs are what the caller's options for outputs get if the attempt decides.
type attemptOutputs struct {
	header metadata.MD
	peer   peer.Peer
}

// unsent reports whether the attempt certainly was not sent: grpc-go has ended it without a stream on a connection. When
// there is a stream, grpc-go sets the Trailer of the call, to an empty map at least. An interceptor that does not hand on
// the options leaves the trailer nil too, and then ended is false. When ended is true, the trailer does not change any more.
func (a *clientAttempt) unsent() bool { return a.ended.Load() && a.trailer == nil }

// callOptions returns the options of the attempt. onFinish is called when grpc-go ends the attempt.
func (a *clientAttempt) callOptions(onFinish func(error)) []grpc.CallOption {
	x := a.call
	options := append(a.optionsArray[:0], x.options...)
	options = append(options, grpc.Trailer(&a.trailer), grpc.OnFinish(onFinish))
	if len(x.outputs) > 0 {
		a.outputs = new(attemptOutputs)
		options = append(options, grpc.Header(&a.outputs.header), grpc.Peer(&a.outputs.peer))
	}
	if x.isDoubled(a.number) {
		options = append(options, withoutServiceConfigRetry)
	}
	return options
}

// deliver sets what the caller's Header, Trailer and Peer options point to. It does nothing if there was no stream on a
// connection, as grpc-go.
func (a *clientAttempt) deliver() {
	if a == nil || a.trailer == nil {
		return
	}
	for _, option := range a.call.outputs {
		switch o := option.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = a.outputs.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = a.trailer
		case grpc.PeerCallOption:
			*o.PeerAddr = a.outputs.peer
		}
	}
}
