package handlerio

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// A ClientContext has a context that ends when the client has gone. The context of a request also ends when a read deadline passes
// that weir has set on the connection, because net/http ends it when reading fails for any reason. A timeout strategy would then
// report a client that has gone instead of its own timeout.
type ClientContext struct {
	Ctx     context.Context
	Stop    func()         // to be called when the request is over
	outer   *ClientContext // of the next handler further out; nil: there is none
	expired atomic.Bool    // a deadline of weir has passed on the connection
}

// clientKey asks a context for the innermost ClientContext.
type clientKey struct{}

// NewClientContext returns the ClientContext of r. If r has no body, weir sets no read deadline on the connection, and
// Ctx is the context of r.
func NewClientContext(r *http.Request) *ClientContext {
	parent := r.Context()
	if !HasBody(r) {
		return &ClientContext{Ctx: parent, Stop: func() {}}
	}
	c := new(ClientContext)
	c.outer, _ = parent.Value(clientKey{}).(*ClientContext)
	ctx, cancel := context.WithCancelCause(context.WithValue(context.WithoutCancel(parent), clientKey{}, c))
	cancelDeadline := func() {}
	until, ends := parent.Deadline()
	if ends {
		ctx, cancelDeadline = context.WithDeadline(ctx, until)
	}
	c.Ctx = ctx
	stopPropagation := context.AfterFunc(parent, func() {
		if c.expired.Load() || ends && errors.Is(parent.Err(), context.DeadlineExceeded) {
			return // weir's read deadline, or the deadline of parent, which ctx has, too
		}
		cancel(context.Cause(parent))
	})
	c.Stop = func() {
		stopPropagation()
		cancelDeadline()
		cancel(nil)
	}
	return c
}

// Limit returns r with ctx, and makes calls of the handler that wait for the client fail at the deadline of ctx.
// restore lifts that limit, and must be called when the handler has returned.
func (c *ClientContext) Limit(ctx context.Context, response *Response, r *http.Request) (limited *http.Request, restore func()) {
	w := &response.w
	var body *timedBody
	until, limits := ctx.Deadline()
	if limits {
		w.until = until
	}
	if limits && HasBody(r) {
		body = newTimedBody(r, w.inner, until, c)
		w.body = body
	}
	limited = WithContext(r, ctx)
	if body != nil {
		limited.Body = body
	}
	return limited, func() {
		CarryBack(limited, r)
		w.unlimit()
		if body != nil {
			body.cutoff.close()
			w.closeAfter()
		}
	}
}

// Still returns ctx, the context of a request. If it has ended because of weir's read deadline, Still returns one that has not ended,
// because the client is still there.
func (c *ClientContext) Still(ctx context.Context) context.Context {
	if c.expired.Load() && errors.Is(ctx.Err(), context.Canceled) {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// LimitAnswer returns a ResponseWriter and the request for an answer that weir gives in place of a handler. Over HTTP/1, net/http
// reads what is left of the body before it sends a long answer, and a slow client would keep the permits of handlers further out.
// restore must be called when the answer is written.
func LimitAnswer(w http.ResponseWriter, r *http.Request) (limited http.ResponseWriter, request *http.Request, restore func()) {
	if r == nil || r.ProtoMajor != 1 || !HasBody(r) {
		return w, r, func() {}
	}
	c, _ := r.Context().Value(clientKey{}).(*ClientContext)
	ctx, cancel := context.WithTimeout(r.Context(), WriteGrace/2)
	response := new(Response)
	response.Observe(w, r)
	request, lift := c.Limit(ctx, response, r)
	return response.Writer(), request, func() {
		lift()
		cancel()
	}
}

// AwaitEnd returns when ctx is done if its deadline has passed: a handler that a deadline on the connection has woken
// can return before the context's own timer fires.
func AwaitEnd(ctx context.Context) {
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > 0 {
		return
	}
	limit := time.NewTimer(WriteGrace)
	defer limit.Stop()
	select {
	case <-ctx.Done():
	case <-limit.C: // a context of the program, whose Done and Deadline disagree
	}
}
