package weirgrpc

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
)

// A clientStream is a stream with all attempts to open it. Its pipeline runs in a goroutine of its own, from before the
// stream is opened until it has ended, while the caller uses the stream:
//
//	open     starts the goroutine, and waits for the caller's answer
//	run      runs the pipeline, in the goroutine
//	 send     opens the stream, hands it to the caller, and waits for its end
//	end      tells send the end, and waits for run
type clientStream struct {
	outgoingCall

	desc     *grpc.StreamDesc
	streamer grpc.Streamer

	opened chan struct{} // closed when the caller has its answer: stream, err or panicked
	over   chan struct{} // closed when the pipeline has returned

	stream   grpc.ClientStream
	err      error                 // of the pipeline; written before over is closed
	panicked *recovered.PanicError // of a pipeline that has panicked, or left its goroutine
}

// open returns the stream, or the error of the pipeline.
func (x *clientStream) open(ctx context.Context, p *pipeline.Pipeline) (grpc.ClientStream, error) {
	go x.run(ctx, p)
	<-x.opened
	if x.stream != nil {
		return x.stream, nil
	}
	if x.panicked != nil {
		x.panicked.Continue()
	}
	return nil, x.err
}

// run runs the pipeline. A panic is the caller's as long as the caller waits. Later it is logged, because there is no
// caller whose panic it could be.
func (x *clientStream) run(ctx context.Context, p *pipeline.Pipeline) {
	defer close(x.over)
	returned := false
	defer func() {
		if returned {
			return
		}
		panicked := recovered.NewPanicError(recover())
		if x.Settle() {
			x.panicked = panicked
			close(x.opened)
		} else if panicked.Value != nil {
			recovered.Report("weirgrpc: the pipeline of a stream", panicked.Value, panicked.Stack)
		}
	}()
	result, err := pipeline.ExecuteValue(ctx, p, x.send)
	if x.err = err; x.Settle() {
		x.err = x.openError(result, err)
		close(x.opened)
	}
	returned = true
}

// openError returns the caller's error if the pipeline has returned without a stream.
func (x *clientStream) openError(result any, err error) error {
	result, err = x.refusedOr(result, err)
	if failure, ok := result.(*StatusError); ok && err == nil {
		err = failure
	}
	if err == nil {
		err = errNoReply
	}
	err = callerError(x.caller, err)
	x.finished(err)
	return err
}

// A streamEnd is the cause of the end of a stream's context.
type streamEnd struct{ err error }

func (*streamEnd) Error() string { return "weirgrpc: the stream has ended" }

// send makes one attempt to open the stream, and waits for the end of the stream.
func (x *clientStream) send(ctx context.Context) (any, error) {
	if _, err := x.Begin(); err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if !returned {
			x.Abort()
		}
	}()
	a := &clientAttempt{call: &x.outgoingCall}
	own, end := context.WithCancelCause(ctx)
	defer end(nil) // ends a stream that the caller did not get
	options := append(slices.Clip(x.options), grpc.Trailer(&a.trailer), grpc.OnFinish(func(err error) {
		a.over.Store(true)
		end(&streamEnd{err})
	}))
	stream, err := x.streamer(own, x.desc, x.conn, x.method, options...)
	if err == nil && stream == nil {
		err = errNoReply
	}
	opened := err == nil && x.Settle()
	if opened {
		x.stream = &guardedStream{ClientStream: stream, call: x, attempt: a, end: end}
		close(x.opened)
		<-own.Done() // grpc-go may not notice that ctx has ended, if the stream is that of an interceptor
		if ended, ok := errors.AsType[*streamEnd](context.Cause(own)); ok {
			err = ended.err
		} else {
			err = status.FromContextError(ctx.Err()).Err()
		}
		x.finished(err)
	}
	var failure *StatusError
	if err != nil {
		failure = a.newStatusError(ctx, err, nil, !opened && a.unsent())
		failure.retryable = failure.retryable && !opened
	}
	returned = true
	if late := a.end(failure); late != nil && !opened {
		return nil, late
	}
	return a.outcome()
}

// A guardedStream is the stream as the caller gets it. It notices the end of a stream that is not grpc-go's, and returns
// errors as [*StatusError].
type guardedStream struct {
	grpc.ClientStream
	call    *clientStream
	attempt *clientAttempt
	end     context.CancelCauseFunc
}

// RecvMsg implements [grpc.ClientStream].
func (s *guardedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch err {
	case nil:
		if !s.call.desc.ServerStreams { // the only message
			s.await(nil)
		}
		return nil
	case io.EOF: //nolint:errorlint // as generated code compares it
		s.await(nil)
		return err
	default:
		return s.failed(err, s.Trailer())
	}
}

// SendMsg implements [grpc.ClientStream].
func (s *guardedStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err == nil || err == io.EOF { //nolint:errorlint // the status comes from RecvMsg
		return err
	}
	return s.failed(err, nil)
}

// Header implements [grpc.ClientStream].
func (s *guardedStream) Header() (metadata.MD, error) {
	header, err := s.ClientStream.Header()
	if err != nil {
		return header, s.failed(err, nil)
	}
	return header, nil
}

// await ends the pipeline and waits for it. So a caller that opens the next stream when this one has ended finds its permit
// free, and its functions of [grpc.OnFinish] called.
func (s *guardedStream) await(err error) {
	s.end(&streamEnd{err})
	<-s.call.over
}

// failed returns the caller's error for a stream that has ended with err. The context of the strategies does not matter: they may
// have ended it because the stream has ended. If a timeout in the pipeline has ended the stream, the error is that of the timeout,
// because the status says only that a deadline has passed, which the caller has not set.
func (s *guardedStream) failed(err error, trailer metadata.MD) error {
	s.await(err)
	failure := s.attempt.newStatusError(s.call.caller, err, trailer, false)
	if _, ok := errors.AsType[*timeout.Error](s.call.err); ok && isContextCode(failure.status.Code()) {
		return callerError(s.call.caller, s.call.err)
	}
	return callerError(s.call.caller, failure)
}
