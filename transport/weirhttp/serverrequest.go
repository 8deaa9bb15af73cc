package weirhttp

import (
	"errors"
	"net/http"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A call is one request on one route. It is also the context of that request. Its Request is the copy that has this
// context.
type call struct {
	admission.Call[*http.Request]
	route *route
}

// ServeHTTP admits the request or rejects it:
//
//	ServeHTTP      an exempt request goes to the handler at once
//	 serve         asks the policies in order
//	  serveThrough runs the rest of serve inside a policy that is a pipeline
//	  Admit        asks the limiter of any other policy, and decides by its answer
//	  turnAway     answers for the policy that did not admit the request
//	  serveTimed   runs the handler if a policy has a Timeout
//	 End           releases what the policies granted
func (h *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(h.policies) == 0 || h.isExempt(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	c := &call{route: h}
	c.Begin(r.Context(), h.limits.admission)
	c.Request = handlerio.WithContext(r, c)
	if h.global && c.WithinSameLimits() {
		c.First = 1
	}
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
			c.turnAway(w, r, p, key, Rejection{
				Policy: p.Name, Lease: refusal.Lease, RetryAfter: refusal.RetryAfter,
				Status: p.statusFor(refusal.Cause), Err: refusal.Err,
			})
			return
		}
	}
	if c.route.sendsQuotas {
		c.writeQuotas(w, r)
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
		c.GiveBackFrom(before, false) // the permits that an earlier attempt took are spent
		c.serve(w, r, i+1)
	}))
	if !x.answerInstead(w, r, err) {
		return
	}
	rejection := p.handlers.rejection(w, r, err)
	rejection.Policy = p.Name
	if p.options.Status != 0 && errors.Is(rejection.Err, pipeline.ErrRejected) {
		rejection.Status = p.options.Status
	}
	if x.attempts.Begun() > 0 {
		reject(w, r, p.options.OnRejected, c.route.limits.options.Body, rejection)
		return
	}
	undo(nil, w, r) // as Through does: a request that is shed costs nothing further out either
	c.turnAway(w, r, p, "", rejection)
}

// turnAway answers a request that p does not admit. The earlier policies get back what they granted.
func (c *call) turnAway(w http.ResponseWriter, r *http.Request, p *preparedPolicy, key string, rejection Rejection) {
	c.GiveBackFrom(0, true)
	handlerio.MarkRejected(w)
	if rejection.RetryAfter > 0 {
		writeRetryAfter(w.Header(), rejection.RetryAfter)
	}
	if p.quota != nil && rejection.Err == nil {
		p.writeQuota(w, r, key, rejection.Lease, rejection.RetryAfter)
	}
	reject(w, r, p.options.OnRejected, c.route.limits.options.Body, rejection)
}
