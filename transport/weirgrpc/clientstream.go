package weirgrpc

import (
	"context"
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/unsent"
)

// A clientStream is a stream with all attempts to open it. Its pipeline runs in a goroutine of its own, from before the
// stream is opened until it has ended, while the caller uses the stream:
//
//	open     starts the goroutine, and waits for the caller's answer
//	run      runs the pipeline, in the goroutine
//	 send     opens the stream, hands it to the caller, and waits for its end
//
// The caller has its answer when opened is closed: a stream, an error, or the panic of the pipeline.
type clientStream struct {
	outgoingCall

	desc     *grpc.StreamDesc
	streamer grpc.Streamer

	opened  chan struct{}
	over    chan struct{} // closed when the pipeline has returned
	handed  bool          // the caller has the stream; written and read by attempts, under mu
	stream  grpc.ClientStream
	err     error // why the caller has no stream
	outcome error // of the pipeline; written before over is closed
	aborted *abortedPipeline
}

// An abortedPipeline is a pipeline that has panicked, or left its goroutine.
type abortedPipeline struct {
	panicked any // nil: runtime.Goexit
}

// Value returns the call itself for outgoingKey.
func (x *clientStream) Value(key any) any {
	if _, ok := key.(outgoingKey); ok {
		return x
	}
	return x.Context.Value(key)
}

// open returns the stream, or the error of the pipeline.
func (x *clientStream) open(p *pipeline.Pipeline) (grpc.ClientStream, error) {
	go x.run(p)
	<-x.opened
	if x.aborted != nil {
		if x.aborted.panicked == nil {
			runtime.Goexit()
		}
		panic(x.aborted.panicked)
	}
	return x.stream, x.err
}

// run runs the pipeline. A panic is the caller's as long as the caller waits. Later it is logged, because there is no
// caller whose panic it could be.
func (x *clientStream) run(p *pipeline.Pipeline) {
	defer close(x.over)
	returned := false
	defer func() {
		if returned {
			return
		}
		panicked := recover()
		if !x.abandon() {
			x.aborted = &abortedPipeline{panicked}
			close(x.opened)
		} else if panicked != nil {
			recovered.Report("weirgrpc: the pipeline of a stream", panicked, debug.Stack())
		}
	}()
	result, err := pipeline.ExecuteValue(x, p, x.send)
	x.close()
	x.outcome = err
	if x.handed {
		returned = true
		return
	}
	x.err = x.openError(result, err)
	returned = true
	close(x.opened)
}

// abandon lets no other attempt begin or hand over its stream. It reports whether the caller has a stream already.
func (x *clientStream) abandon() (handed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settled = true
	return x.handed
}

// openError returns the caller's error if the pipeline has returned without a stream.
func (x *clientStream) openError(result any, err error) error {
	if unsent.Is(err) && x.last != nil && x.last.failure != nil {
		err = x.last.failure
	}
	if failure, ok := result.(*StatusError); ok && err == nil {
		err = failure
	}
	if err == nil {
		err = errNoReply
	}
	err = callerError(x.Context, err)
	x.finish(err)
	return err
}

// send makes one attempt to open the stream, and waits for the end of the stream.
func (x *clientStream) send(ctx context.Context) (any, error) {
	a := &streamAttempt{done: make(chan struct{})}
	if err := x.begin(&a.clientAttempt); err != nil {
		return nil, err
	}
	counted := false
	defer func() {
		if !counted {
			x.abort()
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that the caller did not get
	stream, err := x.streamer(ctx, x.desc, x.conn, x.method, a.callOptions(a.onFinish)...)
	if err == nil && stream == nil {
		err = errNoReply
	}
	if err == nil && !x.hand(&guardedStream{ClientStream: stream, call: x, attempt: a}) {
		return nil, errTooLate
	}
	opened := err == nil
	if opened {
		err = a.wait(ctx)
		x.finish(err)
	}
	var failure *StatusError
	if err != nil {
		failure = x.newStatusError(ctx, &a.clientAttempt, err, ending{unsent: !opened && a.unsent()})
		failure.retryable = failure.retryable && !opened
	}
	counted = true
	x.count(&a.clientAttempt, failure)
	switch {
	case failure == nil:
		return nil, nil
	case failure.failed:
		return nil, failure
	default:
		return failure, nil
	}
}

// begin counts an attempt that begins, or returns why it must not.
func (x *clientStream) begin(a *clientAttempt) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.running > 0: // two streams, of which the caller can have only one
		return errAtTheSameTime
	case x.handed:
		return errStreamOpen
	}
	if err := x.refusalLocked(); err != nil {
		return err
	}
	x.beginLocked(a)
	return nil
}

// count counts an attempt that has ended.
func (x *clientStream) count(a *clientAttempt, failure *StatusError) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a.failure = failure
	x.endLocked(a)
}

// abort counts an attempt that has not returned.
func (x *clientStream) abort() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.abortLocked()
}

// hand hands the stream to the caller. It returns false if the caller has its answer already.
func (x *clientStream) hand(s *guardedStream) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.settled {
		return false
	}
	x.handed, x.stream = true, s
	close(x.opened)
	return true
}

// A streamAttempt is an attempt to open a stream, and then the stream until its end.
type streamAttempt struct {
	clientAttempt
	once sync.Once
	err  error // how the stream ended, when done is closed
	done chan struct{}
}

// onFinish is called by grpc-go when the stream has ended, however that came about.
func (a *streamAttempt) onFinish(err error) {
	a.ended.Store(true)
	a.end(err)
}

// end ends the wait for the end of the stream. Only the first call counts.
func (a *streamAttempt) end(err error) {
	a.once.Do(func() {
		a.err = err
		close(a.done)
	})
}

// wait waits for the end of the stream, and returns how it ended. It does not rely on grpc-go to notice that ctx has ended,
// because the stream can be that of an interceptor.
func (a *streamAttempt) wait(ctx context.Context) error {
	select {
	case <-a.done:
	case <-ctx.Done():
		a.end(status.FromContextError(ctx.Err()).Err())
		<-a.done
	}
	return a.err
}

// A guardedStream is the stream as the caller gets it. It notices the end of a stream that is not grpc-go's, and returns
// errors as [*StatusError].
type guardedStream struct {
	grpc.ClientStream
	call    *clientStream
	attempt *streamAttempt
}

// RecvMsg implements [grpc.ClientStream].
func (s *guardedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch err {
	case nil:
		if !s.call.desc.ServerStreams { // the only message
			s.end(nil)
		}
		return nil
	case io.EOF: //nolint:errorlint // as generated code compares it
		s.end(nil)
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

// maxEndWait bounds how long the caller waits for strategies that know how the stream has ended. They are done at once,
// unless the program has a retry that waits for an attempt which [clientStream.begin] will refuse.
const maxEndWait = 250 * time.Millisecond

// end ends the pipeline and waits for it. So a caller that opens the next stream when this one has ended finds its permit
// free, and its functions of [grpc.OnFinish] called.
func (s *guardedStream) end(err error) {
	s.attempt.end(err)
	select {
	case <-s.call.over:
		return
	default:
	}
	timer := time.NewTimer(maxEndWait)
	defer timer.Stop()
	select {
	case <-s.call.over:
	case <-timer.C:
	}
}

// failed returns the caller's error for a stream that has ended with err. The context of the strategies says nothing about
// it: when the stream has ended, they may have ended their context.
func (s *guardedStream) failed(err error, trailer metadata.MD) error {
	s.end(err)
	failure := s.call.newStatusError(s.call.Context, &s.attempt.clientAttempt, err, ending{trailer: trailer})
	if isContextCode(failure.status.Code()) {
		if timedOut := s.call.timedOut(); timedOut != nil {
			return callerError(s.call.Context, timedOut)
		}
	}
	return callerError(s.call.Context, failure)
}

// timedOut returns the error of the pipeline if a timeout in it has ended the stream, or nil. The status of such a stream
// says only that some deadline has passed, which the caller may not have set.
func (x *clientStream) timedOut() error {
	select {
	case <-x.over:
		if _, ok := errors.AsType[*timeout.Error](x.outcome); ok {
			return x.outcome
		}
	default:
	}
	return nil
}
