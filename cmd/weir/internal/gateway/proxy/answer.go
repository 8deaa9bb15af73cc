package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// discard is the log of net/http/httputil, which has only errors of bodies that end early. The access log says that the
// answer was aborted.
var discard = log.New(io.Discard, "", 0)

// ErrShutdown is the cause of the context of requests that still run when the gateway has waited long enough for them.
var ErrShutdown = errors.New("the gateway shuts down")

// failed answers a request that the upstream has not answered.
func (t *route) failed(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	x := requestOf(ctx)
	maps.Copy(w.Header(), x.answered)
	if cause := context.Cause(ctx); cause != nil {
		if _, ok := errors.AsType[*timeout.Error](cause); ok {
			x.fault = cause
			return // the policy whose timeout it is answers
		}
		if errors.Is(cause, ErrShutdown) {
			err = cause
		}
	}
	after, _ := pipeline.RetryAfter(err)
	t.table.answer(w, r, x, statusOf(ctx, err), after, err)
}

// statusOf returns the status of the answer to a request that the upstream has not answered.
func statusOf(ctx context.Context, err error) int {
	var timeout interface{ Timeout() bool }
	isTimeout := errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded)
	_, isLimited := errors.AsType[*ratelimit.RejectedError](err)
	switch {
	case errors.Is(err, ErrShutdown):
		return http.StatusServiceUnavailable
	case isClients(err) && errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout // net/http also ends the context then
	case ctx.Err() != nil:
		return weirhttp.StatusClientClosedRequest
	case isClients(err):
		return http.StatusBadRequest
	case isLimited:
		return weirhttp.StatusOf(ctx, err)
	case upstream.NotSent(err):
		return http.StatusBadGateway // also if it was too late to connect: the upstream was not asked
	case isTimeout:
		return http.StatusGatewayTimeout
	}
	if status := weirhttp.StatusOf(ctx, err); status != http.StatusInternalServerError {
		return status
	}
	return http.StatusBadGateway
}

// isClients reports whether the body of the client's request could not be read.
func isClients(err error) bool {
	_, ok := errors.AsType[*upstream.ClientError](err)
	return ok
}

// answer answers in place of the upstream. err is for the log: clients are told the status, but not what is behind the gateway.
func (t *Table) answer(w http.ResponseWriter, r *http.Request, x *request, status int, after time.Duration, err error) {
	x.fault, x.meant = err, status
	weirhttp.Reject(w, r, t.body, weirhttp.Rejection{Status: status, RetryAfter: after, Err: err})
}
