package weirhttp

import (
	"context"
	"net/http"
	"reflect"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A call is one request on one route. It is also the context of that request. Its Request is the copy that has this
// context.
type call struct {
	admission.Call[*http.Request]
	route  *route
	header http.Header // of the response
}

// Value returns the request of the call for requestKey, and the call itself for callKey.
func (c *call) Value(key any) any {
	switch key.(type) {
	case requestKey:
		return c.Request
	case callKey:
		return c
	default:
		return c.Call.Value(key)
	}
}

// callKey asks a context for the innermost call.
type callKey struct{}

// callOf returns the innermost call that the context belongs to, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// ServeHTTP admits the request or rejects it:
//
//	ServeHTTP      an exempt request goes to the handler at once
//	 serve         asks the policies in order
//	  serveThrough runs the rest of serve inside a policy that is a pipeline
//	  Admit        asks the limiter of any other policy, and decides by its answer
//	  rejectBy     answers for the policy that did not admit the request
//	  serveTimed   runs the handler if a policy has a Timeout
//	 End           releases what the policies granted
func (h *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if exempt := h.limits.options.Exempt; len(h.policies) == 0 || exempt != nil && exempt(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	c := &call{route: h, header: w.Header()}
	c.Begin(r.Context(), h.limits.admission, h.global)
	c.Request = handlerio.WithContext(r, c)
	returned := false
	defer c.End()
	defer func() {
		handlerio.CarryBack(c.Request, r)
		if !returned {
			handlerio.RemoveFiles(r)
		}
	}()
	c.serve(w, c.Request, int(c.First))
	returned = true
}

// serve asks the policies from number i on, and then runs the handler.
func (c *call) serve(w http.ResponseWriter, r *http.Request, i int) {
	for ; i < len(c.route.policies); i++ {
		p := c.route.policies[i]
		if p.handlers != nil {
			c.serveThrough(w, r, i)
			return
		}
		if key, refusal, ok := c.Admit(r.Context(), &p.Policy, r); !ok {
			c.rejectBy(w, r, p, key, Rejection{
				Policy: p.Name, Lease: refusal.Lease, RetryAfter: refusal.RetryAfter,
				Status: p.statusFor(refusal.Cause), Err: refusal.Err,
			})
			return
		}
	}
	if c.route.sendsQuotas {
		for _, p := range c.route.policies[c.First:] {
			c.WriteGranted(w.Header(), &p.Policy, r)
		}
	}
	if c.route.timed != nil {
		c.serveTimed(w, r)
		return
	}
	c.route.next.ServeHTTP(w, r)
}

// serveThrough runs the rest of the call, the policies after number i and the handler, in the pipeline of policy i.
func (c *call) serveThrough(w http.ResponseWriter, r *http.Request, i int) {
	p := c.route.policies[i]
	before := c.Held()
	x, err := p.handlers.run(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.BeginAttempt(before)
		c.serve(w, r, i+1)
	}))
	if !x.answerInstead(w, r, err) {
		return
	}
	rejection := x.rejection(w, err)
	rejection.Policy = p.Name
	rejection.Status = p.statusFor(x.cause(rejection.Err))
	if x.attempts.Begun() > 0 {
		reject(w, r, p.options.OnRejected, c.route.limits.options.Body, rejection)
		return
	}
	refundOuter(w, r) // as Through does: a request that is shed costs nothing further out either
	c.rejectBy(w, r, p, "", rejection)
}

// rejectBy answers a request that p does not admit, and refunds what the earlier policies have granted.
func (c *call) rejectBy(w http.ResponseWriter, r *http.Request, p *preparedPolicy, key string, rejection Rejection) {
	c.Refund()
	handlerio.MarkRejected(w)
	writeRetryAfter(w.Header(), rejection.RetryAfter)
	if rejection.Err == nil {
		c.route.limits.admission.WriteQuota(w.Header(), &p.Policy, r, key, rejection.Lease, rejection.RetryAfter)
	}
	reject(w, r, p.options.OnRejected, c.route.limits.options.Body, rejection)
}

// refundOuter makes the calls further out refund their grants, because a pipeline has shed the request, and removes their quota
// headers. It stops at a handler that has given the pipeline another response than its own, such as a buffer: that handler may
// answer the request itself.
func refundOuter(w http.ResponseWriter, r *http.Request) {
	own := reflect.ValueOf(w.Header()).UnsafePointer()
	for c := callOf(r.Context()); c != nil && reflect.ValueOf(c.header).UnsafePointer() == own; c = callOf(c.Context) {
		c.MarkUnused()
		if c.route.sendsQuotas {
			transport.Fields.Remove(c.header)
		}
	}
}

// serveTimed runs the handler within the Timeout of the route. If the handler has not begun to answer by then, serveTimed answers.
func (c *call) serveTimed(w http.ResponseWriter, r *http.Request) {
	p := c.route.timed
	cause := &timeout.Error{Source: p.Source, After: p.Timeout}
	client := handlerio.NewClientContext(r)
	defer client.Stop()
	ctx, cancel := context.WithTimeoutCause(client.Ctx, p.Timeout, cause)
	defer cancel()

	response := handlerio.NewResponse(w, r)
	c.runWithin(ctx, client, response, r)
	if response.Begun() {
		return
	}
	handlerio.AwaitEnd(ctx)
	if context.Cause(ctx) == error(cause) { //nolint:errorlint // it is this very cause
		c.Report(r.Context(), &p.Policy, timeout.EventTimeout, pipeline.SeverityError, cause)
		response.RestoreHeader()
		rejection := Rejection{Policy: p.Name, Status: http.StatusServiceUnavailable, Err: cause}
		reject(w, r, p.options.OnRejected, c.route.limits.options.Body, rejection)
	}
}

// runWithin runs the handler within the deadline of ctx. It is a function of its own so that the limit on reading and
// writing is lifted before serveTimed answers.
func (c *call) runWithin(ctx context.Context, client *handlerio.ClientContext, response *handlerio.Response, r *http.Request) {
	limited, restore := client.Limit(ctx, response, r)
	defer restore()
	c.route.next.ServeHTTP(response.Writer(), limited)
}
