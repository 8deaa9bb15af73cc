package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// TimeoutError is the error of a request whose handler has not answered within
// [Policy.Timeout], and the [context.Cause] of its context. It [errors.Is]
// [pipeline.ErrRejected].
type TimeoutError struct {
	Policy string
	After  time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("weirhttp: policy %s: no answer within %v", e.Policy, e.After)
}

// Is tells whether target is [pipeline.ErrRejected].
func (e *TimeoutError) Is(target error) bool { return target == pipeline.ErrRejected }

// Timeout returns true, as a [net.Error] would.
func (e *TimeoutError) Timeout() bool { return true }

// serveTimed runs the handler for as long as the policy's Timeout allows.
func (c *call) serveTimed(w http.ResponseWriter, r *http.Request) {
	p := c.route.timed
	cause := &TimeoutError{Policy: p.name, After: p.Timeout}
	parent, client := shielded(r)
	defer client.stop()
	ctx, cancel := context.WithTimeoutCause(parent, p.Timeout, cause)
	defer cancel()

	own, header := newResponse(w), saveHeader(w.Header())
	own.request = r
	c.runGuarded(ctx, own, r, client)
	if own.begun() {
		return
	}
	awaitEnd(ctx)
	if context.Cause(ctx) == error(cause) { //nolint:errorlint // it is the very cause that was set
		c.report(r.Context(), p, EventTimeout, pipeline.SeverityError, cause)
		header.restore(w.Header())
		rejection := Rejection{Policy: p.name, Status: http.StatusServiceUnavailable, Err: cause}
		reject(w, r, p.OnRejected, c.route.limits.options.Body, rejection)
	}
}

func (c *call) runGuarded(ctx context.Context, own *response, r *http.Request, client *shield) {
	limited, restore := client.guard(ctx, own, r)
	defer restore()
	c.route.next.ServeHTTP(own.writer(), limited)
}

// writeGrace is how long a response may still be written when the time of its
// request is over: for a handler that has something to say about it. One that begins
// later has so long from then on.
const writeGrace = time.Second

// guard returns r with ctx, and has calls that wait for the client fail when the time
// of ctx is over. restore ends that, and has to be called when the handler has
// returned.
func (s *shield) guard(ctx context.Context, w *response, r *http.Request) (limited *http.Request, restore func()) {
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
	body := newTimedBody(r, w.inner, until, s)
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

// awaitEnd returns when ctx is done, if its deadline has passed: who was woken up by
// a deadline on the connection may be earlier than the context's own timer.
func awaitEnd(ctx context.Context) {
	if until, ok := ctx.Deadline(); !ok || time.Until(until) > 0 {
		return
	}
	patience := time.NewTimer(writeGrace)
	defer patience.Stop()
	select {
	case <-ctx.Done():
	case <-patience.C: // not a context of the standard library's kind
	}
}
