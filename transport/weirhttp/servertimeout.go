package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// TimeoutError is the error of a request whose handler has not answered within [Policy.Timeout], and the
// [context.Cause] of its context. [errors.Is] matches it with [pipeline.ErrRejected].
type TimeoutError struct {
	Policy string
	After  time.Duration
}

// Error returns the policy and its Timeout.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("weirhttp: policy %s: no answer within %v", e.Policy, e.After)
}

// Is reports whether target is [pipeline.ErrRejected].
func (e *TimeoutError) Is(target error) bool { return target == pipeline.ErrRejected }

// Timeout returns true, as for a [net.Error].
func (e *TimeoutError) Timeout() bool { return true }

// serveTimed runs the handler within the policy's Timeout, and answers if the handler has not begun to.
func (c *call) serveTimed(w http.ResponseWriter, r *http.Request) {
	p := c.route.timed
	cause := &TimeoutError{Policy: p.name, After: p.Timeout}
	client := newClientContext(r)
	defer client.stop()
	ctx, cancel := context.WithTimeoutCause(client.ctx, p.Timeout, cause)
	defer cancel()

	own, header := newResponse(w), saveHeader(w.Header())
	own.request = r
	c.runLimited(ctx, own, r, client)
	if own.begun() {
		return
	}
	awaitEnd(ctx)
	if context.Cause(ctx) == error(cause) { //nolint:errorlint // it is this very cause
		c.report(r.Context(), p, EventTimeout, pipeline.SeverityError, cause)
		header.restore(w.Header())
		rejection := Rejection{Policy: p.name, Status: http.StatusServiceUnavailable, Err: cause}
		reject(w, r, p.OnRejected, c.route.limits.options.Body, rejection)
	}
}

// runLimited runs the handler with ctx and the deadlines that go with it.
func (c *call) runLimited(ctx context.Context, own *response, r *http.Request, client *clientContext) {
	limited, restore := client.limit(ctx, own, r)
	defer restore()
	c.route.next.ServeHTTP(own.writer(), limited)
}

// A clientContext is the context of a request without the ends that a deadline of weir causes. net/http ends a
// request's context when reading from the connection fails for any reason. Over HTTP/1 a read deadline that weir sets
// would look as if the client had hung up: a timeout strategy would report a client that has gone instead of its own
// timeout.
type clientContext struct {
	ctx     context.Context
	expired atomic.Bool // a deadline of weir has passed on the connection
	stop    func()
}

// newClientContext returns that of r. A request without a body needs none, because its connection gets no read
// deadline: its ctx is that of the request.
func newClientContext(r *http.Request) *clientContext {
	parent := r.Context()
	if !hasBody(r) {
		return &clientContext{ctx: parent, stop: func() {}}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	cancelDeadline := func() {}
	until, ends := parent.Deadline()
	if ends {
		ctx, cancelDeadline = context.WithDeadline(ctx, until)
	}
	c := &clientContext{ctx: ctx}
	stopPropagation := context.AfterFunc(parent, func() {
		if c.expired.Load() || ends && errors.Is(parent.Err(), context.DeadlineExceeded) {
			return // weir's deadline, or one that ctx has itself
		}
		cancel(context.Cause(parent))
	})
	c.stop = func() {
		stopPropagation()
		cancelDeadline()
		cancel(nil)
	}
	return c
}

// writeGrace is how long after the end of its time a handler can still write a response, for example one that says that
// it ran out of time. A response that begins later has that long from its beginning.
const writeGrace = time.Second

// limit returns r with ctx, and makes calls that wait for the client fail at the deadline of ctx. restore ends that. It
// must be called when the handler has returned.
func (c *clientContext) limit(ctx context.Context, w *response, r *http.Request) (limited *http.Request, restore func()) {
	until, ok := ctx.Deadline()
	if !ok {
		limited = withContext(r, ctx)
		return limited, func() { carryBack(limited, r) }
	}
	w.until = until
	if !hasBody(r) {
		limited = withContext(r, ctx)
		return limited, func() {
			carryBack(limited, r)
			w.unlimit()
		}
	}
	body := newTimedBody(r, w.inner, until, c)
	w.body = body
	limited = withContext(r, context.WithValue(ctx, bodyKey{}, body))
	limited.Body = body
	return limited, func() {
		carryBack(limited, r)
		w.unlimit()
		body.cutoff.close()
		w.closeAfter()
	}
}

func hasBody(r *http.Request) bool { return r.Body != nil && r.Body != http.NoBody }

// awaitEnd returns when ctx is done if its deadline has passed: a handler that a deadline on the connection has woken
// can return before the context's own timer fires.
func awaitEnd(ctx context.Context) {
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > 0 {
		return
	}
	limit := time.NewTimer(writeGrace)
	defer limit.Stop()
	select {
	case <-ctx.Done():
	case <-limit.C: // a context of the program, whose Done and Deadline disagree
	}
}
