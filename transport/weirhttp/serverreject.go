package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// StatusClientClosedRequest is the status of a request whose client has gone while
// it waited. Nobody gets to see it but the log: no RFC has it, many servers do.
const StatusClientClosedRequest = 499

// rejected is for a limiter that rejects. With ok the request goes on all the same.
func (c *call) rejected(ctx context.Context, p *policy, lease limiter.Lease) (rejection Rejection, ok bool) {
	if p.Shadow {
		if c.listening {
			c.report(ctx, p, ratelimit.EventShadowRejected, pipeline.SeverityWarning, rejectedError(p, lease))
		}
		return Rejection{}, true
	}
	if p.FailOpen && undecided(lease) {
		if c.listening {
			c.report(ctx, p, EventFailedOpen, pipeline.SeverityWarning, rejectedError(p, lease))
		}
		return Rejection{}, true
	}
	if c.listening {
		severity := pipeline.SeverityError
		if p.keyed() {
			severity = pipeline.SeverityWarning // a client over its quota is no fault of the program
		}
		c.report(ctx, p, ratelimit.EventRejected, severity, rejectedError(p, lease))
	}
	after, _ := lease.RetryAfter()
	return Rejection{Policy: p.name, Lease: lease, RetryAfter: max(after, 0), Status: p.statusOf(lease)}, false
}

// undecided reports whether a rejection says nothing about the caller's quota: the
// store is away, or the limiter is closed. FailOpen lets such requests through. Too many
// keys is a decision: an attacker who makes up keys would bring it about.
func undecided(lease limiter.Lease) bool {
	reason := lease.Reason()
	return reason == limiter.ReasonUnavailable || reason == limiter.ReasonClosed
}

// failed is for a limiter that took no decision. With ok the request goes on all
// the same.
func (c *call) failed(ctx context.Context, p *policy, n int, err error) (rejection Rejection, ok bool) {
	rejection = Rejection{Policy: p.name, Err: fmt.Errorf("weirhttp: policy %s: %w", p.name, err)}
	switch {
	case ctx.Err() != nil:
		rejection.Status = statusOfEnded(ctx)
		return rejection, false // whatever the policy: nobody waits for an answer any more
	case errors.Is(err, limiter.ErrPermitCount):
		// The cost is more than the limiter can ever grant, so waiting will not help.
		// Less than 0 is a mistake in the program.
		if rejection.Status = p.statusOf(limiter.Lease{}); n < 0 {
			rejection.Status = http.StatusInternalServerError
		}
	default:
		rejection.Status = http.StatusServiceUnavailable
	}
	switch {
	case p.Shadow:
		c.report(ctx, p, ratelimit.EventShadowError, pipeline.SeverityWarning, rejection.Err)
		return rejection, true
	case p.FailOpen && !errors.Is(err, limiter.ErrPermitCount): // else who asks for too much would get it
		c.report(ctx, p, EventFailedOpen, pipeline.SeverityWarning, rejection.Err)
		return rejection, true
	}
	c.report(ctx, p, EventFailed, pipeline.SeverityError, rejection.Err)
	return rejection, false
}

// statusOf tells callers over their quota from a server that is short of capacity.
// A limiter that all share says by RetryAfter which it is: what comes back with
// time is a quota, what comes back when others are done is capacity.
func (p *policy) statusOf(lease limiter.Lease) int {
	if p.Status != 0 {
		return p.Status
	}
	switch lease.Reason() {
	case limiter.ReasonPartitionLimit, limiter.ReasonClosed, limiter.ReasonUnavailable:
		return http.StatusServiceUnavailable
	}
	if _, known := lease.RetryAfter(); known || p.keyed() {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// statusOfEnded is for a context that has ended: by the client that has gone, or
// by a deadline that somebody has set.
func statusOfEnded(ctx context.Context) int {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return StatusClientClosedRequest
}

// turnAway answers a request that a policy does not let through. It costs nothing
// in the policies before.
func (c *call) turnAway(w http.ResponseWriter, r *http.Request, p *policy, key string, rejection Rejection) {
	c.giveBack()
	markRejected(w)
	if rejection.RetryAfter > 0 {
		writeRetryAfter(w.Header(), rejection.RetryAfter)
	}
	if p.figures != nil && rejection.Err == nil {
		p.tell(w, r, key, rejection.Lease, rejection.RetryAfter)
	}
	reject(w, r, p.OnRejected, c.route.limits.options.Body, rejection)
}

// reject answers with what onRejected writes, or body.
func reject(w http.ResponseWriter, r *http.Request, onRejected, body Body, rejection Rejection) {
	if rejection.Status == StatusClientClosedRequest {
		w.WriteHeader(rejection.Status)
		return
	}
	if onRejected != nil {
		own := newResponse(w)
		onRejected(own.writer(), r, rejection)
		if own.begun() {
			return
		}
	}
	body(w, r, rejection)
}
