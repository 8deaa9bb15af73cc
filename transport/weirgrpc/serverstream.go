package weirgrpc

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/transport/internal/admission"
)

// A serverStream is the stream of a call, as the handler gets it. As for every [grpc.ServerStream], one goroutine can
// receive while another one sends.
type serverStream struct {
	grpc.ServerStream
	call    *call
	srv     any
	handler grpc.StreamHandler

	ctx    context.Context // the context of the handler
	cancel context.CancelCauseFunc
	// refused is the error of the message that a policy did not admit. It ends the stream: what the handler receives and
	// sends afterwards fails with it, and it is the status of the stream.
	refused  atomic.Pointer[CallRejectedError]
	received Request // of the message that was received last
	sent     Request // of the message that was sent last
}

// Context returns the context of the handler.
func (s *serverStream) Context() context.Context { return s.ctx }

// handle runs the handler with ctx.
func (s *serverStream) handle(ctx context.Context) error {
	s.ctx = ctx
	route := s.call.route
	if len(route.received) > 0 || len(route.sent) > 0 {
		s.ctx, s.cancel = context.WithCancelCause(ctx)
		defer s.cancel(nil)
	}
	return s.handler(s.srv, s)
}

// RecvMsg receives a message, and asks the policies for received messages about it.
func (s *serverStream) RecvMsg(m any) error {
	if err := s.usable(); err != nil {
		return err
	}
	policies := s.call.route.received
	for _, p := range policies { // the handler is done with the last message
		s.call.GiveBackOf(&p.Policy, false)
	}
	if err := s.ServerStream.RecvMsg(m); err != nil || len(policies) == 0 {
		return err
	}
	return s.admit(policies, &s.received, m)
}

// SendHeader sends the header of the handler, with the quotas.
func (s *serverStream) SendHeader(md metadata.MD) error {
	s.tell()
	return s.ServerStream.SendHeader(md)
}

// tell adds the quotas to the header before the handler sends it.
func (s *serverStream) tell() {
	if quotas := s.call.unsentQuotas(); quotas != nil {
		_ = s.SetHeader(quotas)
	}
}

// SendMsg asks the policies for sent messages about a message, and sends it.
func (s *serverStream) SendMsg(m any) error {
	if err := s.usable(); err != nil {
		return err
	}
	policies := s.call.route.sent
	if len(policies) == 0 {
		s.tell()
		return s.ServerStream.SendMsg(m)
	}
	if err := s.admit(policies, &s.sent, m); err != nil {
		return err
	}
	s.tell()
	defer func() {
		for _, p := range policies {
			s.call.GiveBackOf(&p.Policy, false)
		}
	}()
	return s.ServerStream.SendMsg(m)
}

// usable returns the error if the handler can no longer receive and send: a message was rejected, the handler's time is over, or a
// strategy has ended its context. grpc-go does not know the handler's context, so a handler that only receives and sends would not
// notice its end.
func (s *serverStream) usable() error {
	if refused := s.refused.Load(); refused != nil {
		return refused
	}
	if !s.call.route.endsHandlers {
		return nil
	}
	ended := s.ctx.Err()
	if ended == nil {
		return nil
	}
	if late, ok := context.Cause(s.ctx).(timedOut); ok { //nolint:errorlint // a cause is not wrapped
		return late
	}
	if s.call.Err() == nil {
		return status.FromContextError(ended).Err()
	}
	return nil // grpc-go says it
}

// admit asks the policies about a message. r is the request to tell them with.
func (s *serverStream) admit(policies []*preparedPolicy, r *Request, m any) error {
	*r = Request{Method: s.call.request.Method, Message: m, Stream: true, ctx: s.ctx}
	defer func() { r.Message = nil }() // it belongs to the handler
	for i, p := range policies {
		key, rejection, ok := s.call.Admit(s.ctx, &p.Policy, r)
		if ok {
			continue
		}
		for _, earlier := range policies[:i] {
			s.call.GiveBackOf(&earlier.Policy, true)
		}
		return s.refuse(p, r, key, &rejection)
	}
	return nil
}

// refuse ends the stream because p does not admit a message. If two messages are rejected at the same time, the first one
// counts. The end of the context while a message waits does not decide the status of the stream: the handler can have returned
// with success while one of its goroutines still waited.
func (s *serverStream) refuse(p *preparedPolicy, r *Request, key string, rejection *admission.Rejection) error {
	if rejection.Cause.Ended() {
		if err := s.usable(); err != nil {
			return err
		}
		return newRejectedError(p, p.codeFor(rejection.Cause), rejection)
	}
	rejected := s.call.withQuota(newRejectedError(p, p.codeFor(rejection.Cause), rejection), p, r, key)
	if !s.refused.CompareAndSwap(nil, rejected) {
		return s.refused.Load()
	}
	s.cancel(rejected)
	return rejected
}
