package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A call is one request on one route. It is also the context of that request, so that the leases in the context cost no
// allocation of their own; servercontext.go has the methods of the context, and servergrants.go has the methods for the
// grants that the call holds.
type call struct {
	context.Context // the one that the request came with

	route       *route
	request     *http.Request // the copy that has this context
	firstPolicy int32         // the number of the policy that was asked first
	listening   bool
	measuring   bool

	mu        sync.Mutex
	over      bool     // the handler has returned: nothing more is held; under mu
	held      []grant  // what the policies have granted
	heldArray [2]grant // the first array of held: most routes have one policy or two
}

// ServeHTTP admits the request or rejects it:
//
//	ServeHTTP      an exempt request goes to the handler at once
//	 serve         asks the policies in order
//	  serveThrough runs the rest of serve inside a policy that is a pipeline
//	  admit        asks the limiter of any other policy, and decides by its answer
//	  turnAway     answers for the policy that did not admit the request
//	  serveTimed   runs the handler if a policy has a Timeout
//	 end           releases what the policies granted
func (h *route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(h.policies) == 0 || h.isExempt(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	c := &call{Context: r.Context(), route: h}
	c.held = c.heldArray[:0]
	c.listening, c.measuring = h.limits.listens(c.Context)
	c.request = handlerio.WithContext(r, c)
	if h.global && c.askedGlobalBefore() {
		c.firstPolicy = 1
	}
	returned := false
	defer c.end()
	defer func() {
		handlerio.CarryBack(c.request, r)
		if !returned {
			handlerio.RemoveFiles(r)
		}
	}()
	c.serve(w, c.request, int(c.firstPolicy))
	returned = true
}

// askedGlobalBefore reports whether a handler further out has asked the same global limiter about this request.
func (c *call) askedGlobalBefore() bool {
	for o := c.outer(); o != nil; o = o.outer() {
		if o.route.limits == c.route.limits {
			return true
		}
	}
	return false
}

// serve asks the policies from number i on, and then runs the handler.
func (c *call) serve(w http.ResponseWriter, r *http.Request, i int) {
	for ; i < len(c.route.policies); i++ {
		p := c.route.policies[i]
		if p.handlers != nil {
			c.serveThrough(w, r, i)
			return
		}
		if key, rejection, ok := c.admit(p, r); !ok {
			c.turnAway(w, r, p, key, rejection)
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
	c.mu.Lock()
	before := len(c.held)
	c.mu.Unlock()
	x, err := p.handlers.run(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.giveBackFrom(before, false) // the permits that an earlier attempt took are spent
		c.serve(w, r, i+1)
	}))
	if !x.answerInstead(w, r, err) {
		return
	}
	rejection := p.handlers.rejection(w, r, err)
	rejection.Policy = p.name
	if p.Status != 0 && errors.Is(err, pipeline.ErrRejected) {
		rejection.Status = p.Status
	}
	if x.ran {
		reject(w, r, p.OnRejected, c.route.limits.options.Body, rejection)
		return
	}
	c.turnAway(w, r, p, "", rejection)
}

// admit asks the limiter of one policy. If ok is false, the request is to be turned away with the rejection. key is
// what Policy.Key returned, which is called once.
func (c *call) admit(p *preparedPolicy, r *http.Request) (key string, rejection Rejection, ok bool) {
	ctx := r.Context()
	n := 1
	if p.Cost != nil {
		n = p.Cost(r)
	}
	if p.Partitioned != nil {
		key = p.Key(r)
	}
	var asked, answered time.Duration
	if c.measuring {
		asked = clock.Now()
	}
	lease, err := p.acquire(ctx, r, key, n)
	if c.measuring {
		answered = clock.Now()
	}
	switch {
	case err != nil:
		lease.Release() // a limiter of the program may have granted permits and returned an error
	case lease.Acquired():
		c.hold(grant{policy: p, lease: lease, key: key, since: answered})
	}
	if c.measuring {
		c.measureRequest(ctx, p, answered-asked, answered, lease, err)
	}
	switch {
	case err != nil:
		rejection, ok = c.failed(ctx, p, n, err)
	case !lease.Acquired():
		rejection, ok = c.rejected(ctx, p, lease)
	default:
		ok = true
	}
	return key, rejection, ok
}

// rejected decides about a request that the limiter has rejected. If ok is true, the request is admitted nevertheless.
func (c *call) rejected(ctx context.Context, p *preparedPolicy, lease limiter.Lease) (rejection Rejection, ok bool) {
	name, severity := ratelimit.EventRejected, pipeline.SeverityError
	switch {
	case p.Shadow:
		name, severity, ok = ratelimit.EventShadowRejected, pipeline.SeverityWarning, true
	case p.FailOpen && undecided(lease):
		name, severity, ok = EventFailedOpen, pipeline.SeverityWarning, true
	case p.keyed():
		severity = pipeline.SeverityWarning // a client over its quota is no fault of the program
	}
	if c.listening {
		c.report(ctx, p, name, severity, rejectedError(p, lease))
	}
	if ok {
		return Rejection{}, true
	}
	after, _ := lease.RetryAfter()
	return Rejection{Policy: p.name, Lease: lease, RetryAfter: max(after, 0), Status: p.statusFor(lease)}, false
}

// undecided reports whether a rejection says nothing about the client's quota: the store is away, or the limiter is
// closed. A rejection because of too many keys is a decision: if FailOpen applied to it, a client could pass every
// limit by making up keys.
func undecided(lease limiter.Lease) bool {
	reason := lease.Reason()
	return reason == limiter.ReasonUnavailable || reason == limiter.ReasonClosed
}

// failed decides about a request for which the limiter returned an error. If ok is true, the request is admitted
// nevertheless.
func (c *call) failed(ctx context.Context, p *preparedPolicy, n int, err error) (rejection Rejection, ok bool) {
	rejection = Rejection{Policy: p.name, Err: fmt.Errorf("weirhttp: policy %s: %w", p.name, err)}
	tooMany := errors.Is(err, limiter.ErrPermitCount)
	switch {
	case ctx.Err() != nil: // also with Shadow and FailOpen: the client has gone
		rejection.Status = statusOfContext(ctx)
		return rejection, false
	case tooMany && n < 0: // a mistake in the program
		rejection.Status = http.StatusInternalServerError
	case tooMany: // the limiter can never grant that many
		rejection.Status = p.statusFor(limiter.Lease{})
	default:
		rejection.Status = http.StatusServiceUnavailable
	}
	name, severity := EventFailed, pipeline.SeverityError
	switch {
	case p.Shadow:
		name, severity, ok = ratelimit.EventShadowError, pipeline.SeverityWarning, true
	case p.FailOpen && !tooMany: // otherwise a client would pass the limit by asking for too much
		name, severity, ok = EventFailedOpen, pipeline.SeverityWarning, true
	}
	c.report(ctx, p, name, severity, rejection.Err)
	return rejection, ok
}

// turnAway answers a request that p does not admit. The earlier policies get back what they granted.
func (c *call) turnAway(w http.ResponseWriter, r *http.Request, p *preparedPolicy, key string, rejection Rejection) {
	c.giveBackFrom(0, true)
	handlerio.MarkRejected(w)
	if rejection.RetryAfter > 0 {
		writeRetryAfter(w.Header(), rejection.RetryAfter)
	}
	if p.quota != nil && rejection.Err == nil {
		p.writeQuota(w, r, key, rejection.Lease, rejection.RetryAfter)
	}
	reject(w, r, p.OnRejected, c.route.limits.options.Body, rejection)
}
