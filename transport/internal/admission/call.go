package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/internal/status"
)

// A Call is one call of a handler behind policies. A transport embeds it in a struct, which is also the context of the handler: a
// separate value in the context would be another allocation.
type Call[R any] struct {
	context.Context   // the one that the request came with
	Request         R // the request as the policies see it

	// First is the index of the first policy to ask: 1 if a handler further out has asked the global one, else 0.
	First int32

	listening bool
	measuring bool
	limits    *Limits[R]

	grants[R]
}

// Begin begins the call of a request that came with ctx. The caller must call [Call.End]. hasGlobal reports whether the first
// policy of the route is the global one. Begin calls Enabled of the Listener.
func (c *Call[R]) Begin(ctx context.Context, l *Limits[R], hasGlobal bool) {
	c.Context = ctx
	c.limits = l
	c.listening, c.measuring = l.listens(ctx)
	if hasGlobal && c.withinSameLimits() {
		c.First = 1
	}
}

// CallKey asks a context for the innermost call.
type CallKey[R any] struct{}

// Value returns the call itself for CallKey, and the context of the client for [status.ClientKey].
func (c *Call[R]) Value(key any) any {
	switch key := key.(type) {
	case CallKey[R]:
		return c
	case status.ClientKey:
		return key.Of(c.Context)
	default:
		return c.Context.Value(key)
	}
}

// String makes fmt print the context without reading all fields, which would race with Charge.
func (c *Call[R]) String() string { return fmt.Sprintf("%v.%s", c.Context, c.limits.transport.Package) }

// CallOf returns the innermost call that the context belongs to, or nil.
func CallOf[R any](ctx context.Context) *Call[R] {
	c, _ := ctx.Value(CallKey[R]{}).(*Call[R])
	return c
}

// outer returns the next call further out, or nil.
func (c *Call[R]) outer() *Call[R] { return CallOf[R](c.Context) }

// withinSameLimits reports whether a handler further out has the same Limits, which have asked their global policy
// about this request.
func (c *Call[R]) withinSameLimits() bool {
	for o := c.outer(); o != nil; o = o.outer() {
		if o.limits == c.limits {
			return true
		}
	}
	return false
}

// A Rejection describes a call that a policy does not admit.
type Rejection struct {
	Cause      status.Cause
	Never      bool          // the limiter can never grant so many permits
	Lease      limiter.Lease // the limiter's answer; the zero Lease if Err is not nil
	RetryAfter time.Duration // 0: not known
	Err        error         // the limiter's error, if there is no answer
}

// errOver is the error of a call whose handler has returned. A goroutine of the handler can still receive a message of a stream, but
// End has run, and would not give back a lease for it.
var errOver = errors.New("the handler has returned")

// Admit asks the limiter of p about r, which is the request with ctx. If ok is false, the caller must answer with the rejection.
// key is the key of the request.
func (c *Call[R]) Admit(ctx context.Context, p *Policy[R], r R) (key string, rejection Rejection, ok bool) {
	n := 1
	if p.Cost != nil {
		n = p.Cost(r)
	}
	if p.Limit.Key != nil {
		key = p.Limit.Key(r)
	}
	var asked, answered time.Duration
	if c.measuring {
		asked = clock.Now()
	}
	lease, err := ambiguous, error(nil)
	if key != AmbiguousKey {
		lease, err = p.acquire(ctx, r, key, n)
	}
	if c.measuring {
		answered = clock.Now()
	}
	switch {
	case err != nil:
		lease.Refund() // a limiter of the program may have granted permits and returned an error
	case lease.Acquired() && !c.hold(grant[R]{policy: p, lease: lease, key: key, since: answered}):
		lease.Refund()
		lease, err = limiter.Lease{}, errOver
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

// rejected decides about a call that the limiter has rejected. If ok is true, the call is admitted nevertheless.
func (c *Call[R]) rejected(ctx context.Context, p *Policy[R], lease limiter.Lease) (rejection Rejection, ok bool) {
	name, severity := ratelimit.EventRejected, pipeline.SeverityError
	switch ok = p.admits(lease); {
	case p.Shadow:
		name, severity = ratelimit.EventShadowRejected, pipeline.SeverityWarning
	case ok:
		name, severity = EventFailedOpen, pipeline.SeverityWarning
	case p.Limit.keyed:
		severity = pipeline.SeverityWarning // a client over its quota is no fault of the program
	}
	if c.listening { // only then is the error made
		c.Report(ctx, p, name, severity, p.rejectedError(lease))
	}
	if ok {
		return Rejection{}, true
	}
	after, _ := lease.RetryAfter()
	return Rejection{Cause: p.causeOf(lease), Lease: lease, RetryAfter: max(after, 0)}, false
}

// failed decides about a call for which the limiter returned an error. If ok is true, the call is admitted nevertheless.
func (c *Call[R]) failed(ctx context.Context, p *Policy[R], n int, err error) (rejection Rejection, ok bool) {
	rejection.Err = fmt.Errorf("%s: policy %s: %w", c.limits.transport.Package, p.Name, err)
	tooMany := errors.Is(err, limiter.ErrPermitCount)
	switch {
	case ctx.Err() != nil || errors.Is(err, errOver):
		// Shadow and FailOpen do not apply: the client has gone, or a strategy has ended the attempt.
		rejection.Cause = status.OfContext(ctx)
		return rejection, false
	case tooMany && n < 0: // a mistake in the program
		rejection.Cause = status.Failed
	default:
		rejection.Cause, rejection.Never = status.OfLimiter(err), tooMany
	}
	name, severity := EventFailed, pipeline.SeverityError
	switch {
	case p.Shadow:
		name, severity, ok = ratelimit.EventShadowError, pipeline.SeverityWarning, true
	case p.FailOpen && !tooMany: // otherwise a client would pass the limit by asking for too much
		name, severity, ok = EventFailedOpen, pipeline.SeverityWarning, true
	}
	c.Report(ctx, p, name, severity, rejection.Err)
	return rejection, ok
}
