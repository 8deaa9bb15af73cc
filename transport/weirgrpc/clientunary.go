package weirgrpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/unsent"
)

// A clientUnary is a unary call with all attempts at it:
//
//	run      runs the pipeline
//	 send     makes one attempt; the pipeline calls it, also many times and at the same time
//	  begin    returns the attempt, or refuses it
//	  end      returns what the strategies see of the attempt
//	 close    waits for the attempts that still run
//	 settle   returns what the caller gets
type clientUnary struct {
	outgoingCall

	request   any
	reply     any                      // the caller's
	replyType protoreflect.MessageType // of a message that does not have its type from its Go type; else nil
	invoker   grpc.UnaryInvoker

	replyTaken bool // an attempt that runs or was successful has the caller's reply
	others     []*clientAttempt
	first      clientAttempt // most calls have only one
}

// Value returns the call itself for outgoingKey.
func (x *clientUnary) Value(key any) any {
	if _, ok := key.(outgoingKey); ok {
		return x
	}
	return x.Context.Value(key)
}

// run makes the call.
func (x *clientUnary) run(p *pipeline.Pipeline) error {
	settled := false
	defer func() {
		if !settled { // a panic, or runtime.Goexit
			x.close()
		}
	}()
	result, err := pipeline.ExecuteValue(x, p, sendUnary)
	x.close()
	settled = true
	if err == nil && x.isFirstReply(result) {
		x.first.deliver() // most calls end here
	} else {
		err = x.settle(result, err)
	}
	x.finish(err)
	if err != nil {
		x.forget()
	}
	return err
}

// isFirstReply reports whether the result is the reply of the only attempt.
func (x *clientUnary) isFirstReply(result any) bool {
	if x.sent != 1 || x.last != &x.first || x.first.failure != nil {
		return false
	}
	t := reflect.TypeOf(x.reply)
	return t != nil && t.Kind() == reflect.Pointer && result == x.reply
}

// forget drops what belongs to the caller. An error that the caller keeps leads to the call, and would keep all of it.
func (x *clientUnary) forget() {
	x.request, x.reply, x.invoker, x.options, x.others = nil, nil, nil, nil, nil
	x.first.reply, x.first.optionsArray = nil, [len(x.first.optionsArray)]grpc.CallOption{}
}

// sendUnary is the callback of the pipeline. It finds the call in the context, which saves the allocation of a method
// value for each call.
func sendUnary(ctx context.Context) (any, error) {
	x, ok := ctx.Value(outgoingKey{}).(*clientUnary)
	if !ok {
		return nil, errContext
	}
	return x.send(ctx)
}

// send makes one attempt. Strategies can run it many times, at the same time, and after the pipeline has returned.
func (x *clientUnary) send(ctx context.Context) (any, error) {
	a, err := x.begin()
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done { // a panic, or runtime.Goexit
			x.abort()
		}
	}()
	reply := a.reply
	err = x.invoker(ctx, x.method, x.request, reply, x.conn, a.callOptions(a.onFinish)...)
	var failure *StatusError
	if err != nil {
		failure = x.newStatusError(ctx, a, err, ending{a.trailer, a.unsent()})
	}
	done = true
	if !x.end(a, failure) {
		return nil, errTooLate
	}
	switch {
	case failure == nil:
		return reply, nil
	case failure.failed:
		return nil, failure
	default:
		return failure, nil
	}
}

func (a *clientAttempt) onFinish(error) { a.ended.Store(true) }

// begin returns a new attempt, or an error if no attempt may begin.
func (x *clientUnary) begin() (*clientAttempt, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.refusalLocked(); err != nil {
		return nil, err
	}
	a := &x.first
	if x.sent > 0 {
		a = new(clientAttempt)
	}
	a.reply, a.hasCallers = x.reply, !x.replyTaken
	if x.replyTaken {
		if a.reply = x.newReply(); a.reply == nil {
			return nil, errAtTheSameTime
		}
	}
	x.replyTaken = true
	x.beginLocked(a)
	if a.number > 0 {
		x.others = append(x.others, a)
	}
	return a, nil
}

// end counts an attempt that has ended. It returns false if the pipeline has returned already.
func (x *clientUnary) end(a *clientAttempt, failure *StatusError) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if a.failure = failure; failure != nil && a.hasCallers {
		x.replyTaken = false
	}
	return x.endLocked(a)
}

// abort counts an attempt that has not returned.
func (x *clientUnary) abort() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.abortLocked()
}

// settle returns what the caller gets for what the pipeline has returned. No attempt runs any more.
func (x *clientUnary) settle(result any, err error) error {
	if last := x.last; unsent.Is(err) && last != nil {
		// The attempt that was refused does not count: the one before it is the outcome.
		if result, err = last.reply, nil; last.failure != nil {
			result = last.failure
		}
	}
	if err == nil {
		err = x.settleResult(result)
	}
	if err == nil {
		return nil
	}
	if failure, ok := errors.AsType[*StatusError](err); ok && failure.isOf(&x.outgoingCall) {
		failure.attempt.deliver()
	}
	return callerError(x.Context, err)
}

// settleResult makes the result of the pipeline the caller's reply, or returns the error that it stands for.
func (x *clientUnary) settleResult(result any) error {
	if failure, ok := result.(*StatusError); ok && failure != nil {
		return failure
	}
	if err := moveReply(x.reply, result); err != nil {
		return err
	}
	x.attemptWith(result).deliver()
	return nil
}

// attemptWith returns the last attempt whose reply is the result, or nil if a strategy made the result.
func (x *clientUnary) attemptWith(result any) *clientAttempt {
	for _, a := range slices.Backward(x.others) {
		if sameReply(a.reply, result) {
			return a
		}
	}
	if x.sent > 0 && sameReply(x.first.reply, result) {
		return &x.first
	}
	return nil
}

// sameReply reports whether both are the same message. Of a type that is no pointer a call has one message only.
func sameReply(a, b any) bool {
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	if !v.IsValid() || !w.IsValid() || v.Type() != w.Type() {
		return false
	}
	return v.Kind() != reflect.Pointer || v.Pointer() == w.Pointer()
}

// newReply returns a new message of the type of the caller's reply, or nil if that is not a pointer. It does not look into
// the caller's reply, because another attempt can be writing it.
func (x *clientUnary) newReply() any {
	if x.replyType != nil {
		return x.replyType.New().Interface()
	}
	if t := reflect.TypeOf(x.reply); t != nil && t.Kind() == reflect.Pointer {
		return reflect.New(t.Elem()).Interface()
	}
	return nil
}

// moveReply makes to, the caller's reply, what from is.
func moveReply(to, from any) error {
	source, target := reflect.ValueOf(from), reflect.ValueOf(to)
	switch {
	case !source.IsValid():
		return errNoReply
	case !target.IsValid() || source.Type() != target.Type():
		return fmt.Errorf("%w: %T, want %T", errReplyType, from, to)
	case source.Kind() != reflect.Pointer:
		return nil // a map or a slice, which only the one attempt can have filled
	case source.IsNil():
		return errNoReply
	case source.Pointer() == target.Pointer():
		return nil
	}
	if message, ok := protoMessage(to); ok {
		own, _ := protoMessage(from)
		proto.Reset(message)
		proto.Merge(message, own)
		return nil
	}
	target.Elem().Set(source.Elem())
	return nil
}

func protoMessage(m any) (proto.Message, bool) {
	switch m := m.(type) {
	case proto.Message:
		return m, true
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), true
	default:
		return nil, false
	}
}
