package weirgrpc

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/admission"
)

// A call is one call of a method with policies. It is also the context of that call.
type call struct {
	admission.Call[*Request]
	route      *route
	request    Request
	unary      grpc.UnaryHandler // nil: the call is a stream
	stream     *serverStream     // nil: the call is unary
	quotasSent atomic.Bool       // the client has got its quotas
}

// UnaryInterceptor returns the interceptor for unary calls:
//
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limits.UnaryInterceptor(), …),
//		grpc.ChainStreamInterceptor(limits.StreamInterceptor(), …))
//
// Put it after the interceptors for logging, metrics and recovery, and after authentication if a key is the
// authenticated user. The error of a rejection is a [*CallRejectedError].
func (l *Limits) UnaryInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		route := l.routes.of(info.FullMethod)
		if len(route.policies) == 0 {
			return handler(ctx, message)
		}
		c := &call{route: route, unary: handler}
		c.request = Request{Method: info.FullMethod, Message: message, ctx: c}
		c.begin(ctx)
		defer c.End()
		response, err := c.serve(c, int(c.First))
		c.tell(err)
		return response, err
	}
}

// StreamInterceptor returns the interceptor for streams; see [Limits.UnaryInterceptor].
func (l *Limits) StreamInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		route := l.routes.of(info.FullMethod)
		if len(route.policies) == 0 {
			return handler(srv, stream)
		}
		c := &call{route: route}
		c.stream = &serverStream{ServerStream: stream, call: c, srv: srv, handler: handler}
		c.request = Request{Method: info.FullMethod, Stream: true, ctx: c}
		c.begin(stream.Context())
		defer c.End()
		_, err := c.serve(c, int(c.First))
		if refused := c.stream.refused.Load(); refused != nil {
			err = refused // also if the handler did not return it
		}
		c.tell(err)
		return err
	}
}

// begin prepares the call for its policies.
func (c *call) begin(ctx context.Context) {
	c.Begin(ctx, c.route.limits.admission, c.route.global)
	c.Request = &c.request
}

// serve asks the policies from number i on, and then runs the handler with ctx:
//
//	serve           asks the policies in order
//	 serveThrough   runs the rest of serve inside a policy that is a pipeline
//	 Admit          asks the limiter of any other policy, and decides by its answer
//	 rejectedBy       makes the error for the policy that did not admit the call
//	 handleTimed    runs the handler if a policy has a Timeout
func (c *call) serve(ctx context.Context, i int) (response any, err error) {
	for ; i < len(c.route.policies); i++ {
		p := c.route.policies[i]
		if p.Limit.Pipeline != nil {
			return c.serveThrough(ctx, i)
		}
		if c.stream != nil && p.perMessage() {
			continue
		}
		if key, rejection, ok := c.Admit(ctx, &p.Policy, c.Request); !ok {
			return nil, c.rejectedBy(p, key, &rejection)
		}
	}
	for _, p := range c.route.policies {
		if c.stream != nil && p.options.Streams == StreamAdmit {
			c.GiveBackOf(&p.Policy, false) // it limits only how streams begin
		}
	}
	if c.route.timed != nil {
		return c.handleTimed(ctx)
	}
	return c.handle(ctx)
}

// serveThrough runs the rest of the call, the policies after number i and the handler, in the pipeline of policy i.
func (c *call) serveThrough(ctx context.Context, i int) (response any, err error) {
	before := c.Held()
	x := &handlerRun{once: c.stream != nil, failed: c.route.limits.options.Failed, repeat: c.NextAttempt, next: func(ctx context.Context) (any, error) {
		c.BeginAttempt(before)
		return c.serve(ctx, i+1)
	}}
	response, err = x.run(ctx, c.route.policies[i])
	if err != nil && x.attempts.Begun() == 0 {
		c.Refund()
	}
	return response, err
}

// handle runs the handler.
func (c *call) handle(ctx context.Context) (response any, err error) {
	if c.stream != nil {
		return nil, c.stream.handle(ctx)
	}
	return c.unary(ctx, c.request.Message)
}

// handleTimed runs the handler within the Timeout of the route. A success stays one, however late it comes.
func (c *call) handleTimed(ctx context.Context) (response any, err error) {
	p := c.route.timed
	cause := timedOut{&timeout.Error{Source: p.Source, After: p.Timeout}}
	limited, cancel := context.WithTimeoutCause(ctx, p.Timeout, cause)
	defer cancel()
	response, err = c.handle(limited)
	if err != nil && context.Cause(limited) == error(cause) && endedByContext(err) { //nolint:errorlint // it is this very cause
		c.Report(ctx, &p.Policy, timeout.EventTimeout, pipeline.SeverityError, cause.err)
		return nil, cause
	}
	return response, err
}

// endedByContext reports whether err is that of a context, or the status of one.
func endedByContext(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		return true
	}
	_, late := errors.AsType[timedOut](err)
	return late || pipeline.IsContextError(err)
}

// rejectedBy returns the error for a call that p does not admit, and refunds what the earlier policies have granted.
func (c *call) rejectedBy(p *preparedPolicy, key string, rejection *admission.Rejection) error {
	c.Refund()
	return c.withQuota(newRejectedError(p, p.codeFor(rejection.Cause), rejection), p, c.Request, key)
}

// withQuota adds the quota of p to the trailer of e, with which p has rejected r.
func (c *call) withQuota(e *CallRejectedError, p *preparedPolicy, r *Request, key string) *CallRejectedError {
	if e.Err == nil {
		e.trailer = c.route.limits.admission.WriteQuota(e.trailer, &p.Policy, r, key, e.Lease, e.retryAfter)
	}
	return e
}

// tell sends the metadata of the call when no other attempt follows: two pushbacks, one of each attempt, would keep grpc-go from
// retrying. The quotas of an error are in the trailer, because grpc-go does not retry if there is a header.
func (c *call) tell(err error) {
	if rejected, ok := err.(*CallRejectedError); ok { //nolint:errorlint // what wraps one is the handler's error
		c.quotasSent.Store(true)
		if len(rejected.trailer) > 0 && rejected.sent.CompareAndSwap(false, true) {
			c.setTrailer(rejected.trailer)
		}
		return
	}
	quotas := c.unsentQuotas()
	switch {
	case quotas == nil:
	case err == nil:
		c.setHeader(quotas)
	default:
		c.setTrailer(quotas)
	}
}

// setTrailer adds to the trailer of the call. An error means that there is no client to tell.
func (c *call) setTrailer(md metadata.MD) {
	if c.stream != nil {
		c.stream.SetTrailer(md)
		return
	}
	_ = grpc.SetTrailer(c.Context, md)
}

// setHeader adds to the header of the call. An error means that the handler has sent the header.
func (c *call) setHeader(md metadata.MD) {
	if c.stream != nil {
		_ = c.stream.SetHeader(md)
		return
	}
	_ = grpc.SetHeader(c.Context, md)
}

// unsentQuotas returns the quotas of the policies that were asked about the call. It returns nil if there are none, or if they have
// been sent.
func (c *call) unsentQuotas() metadata.MD {
	if !c.route.sendsQuotas || !c.quotasSent.CompareAndSwap(false, true) {
		return nil
	}
	var quotas metadata.MD
	for _, p := range c.route.policies[c.First:] {
		if c.stream == nil || !p.perMessage() {
			quotas = c.WriteGranted(quotas, &p.Policy, c.Request)
		}
	}
	return quotas
}
