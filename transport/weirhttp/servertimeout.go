package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// TimeoutError is the error of a request whose handler has not answered within [Policy.Timeout], and the
// [context.Cause] of its context. [errors.Is] matches it with [pipeline.ErrRejected].
type TimeoutError struct {
	Policy string        // the name of the policy
	After  time.Duration // its Timeout
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
	cause := &TimeoutError{Policy: p.Name, After: p.options.Timeout}
	client := handlerio.NewClientContext(r)
	defer client.Stop()
	ctx, cancel := context.WithTimeoutCause(client.Ctx, p.options.Timeout, cause)
	defer cancel()

	response := handlerio.NewResponse(w, r)
	c.runWithin(ctx, client, response, r)
	if response.Begun() {
		return
	}
	handlerio.AwaitEnd(ctx)
	if context.Cause(ctx) == error(cause) { //nolint:errorlint // it is this very cause
		c.Report(r.Context(), &p.Policy, EventTimeout, pipeline.SeverityError, cause)
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
