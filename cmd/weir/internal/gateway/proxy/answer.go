package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
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
	if cause := context.Cause(ctx); cause != nil {
		if _, ok := errors.AsType[*weirhttp.TimeoutError](cause); ok {
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
	limited, isLimited := errors.AsType[*ratelimit.RejectedError](err)
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
		if _, known := limited.RetryAfter(); known && limited.Reason != limiter.ReasonUnavailable {
			return http.StatusTooManyRequests
		}
		return http.StatusServiceUnavailable
	case upstream.NotSent(err):
		return http.StatusBadGateway // also if it was too late to connect: the upstream was not asked
	case isTimeout:
		return http.StatusGatewayTimeout
	case errors.Is(err, pipeline.ErrRejected), errors.Is(err, pipeline.ErrClosed):
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadGateway
	}
}

// isClients reports whether the body of the client's request could not be read.
func isClients(err error) bool {
	_, ok := errors.AsType[*upstream.ClientError](err)
	return ok
}

// details say to clients what happened. They name no server: what is behind the gateway is not for clients.
var details = map[int]string{
	http.StatusBadRequest:         "The request could not be read, or is ambiguous.",
	http.StatusRequestTimeout:     "The rest of the request did not come.",
	http.StatusMethodNotAllowed:   "The gateway does not connect to other servers.",
	http.StatusTooManyRequests:    "There are too many requests to the server behind the gateway.",
	http.StatusBadGateway:         "The server behind the gateway could not be reached, or broke off the connection.",
	http.StatusServiceUnavailable: "The service is not available at present.",
	http.StatusGatewayTimeout:     "The server behind the gateway has not answered in time.",
}

// A problem is RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// answer answers in place of the upstream. err is for the log.
func (t *Table) answer(w http.ResponseWriter, r *http.Request, x *request, status int, after time.Duration, err error) {
	x.fault, x.meant = err, status
	if status == weirhttp.StatusClientClosedRequest { // nothing reads the answer
		w.WriteHeader(status)
		return
	}
	h := w.Header()
	if after > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(after.Seconds())), 10))
	}
	if weirhttp.IsGRPC(r) {
		weirhttp.GRPC(w, r, weirhttp.Rejection{Status: status, RetryAfter: after, Err: err})
		return
	}
	body, contentType := []byte(http.StatusText(status)+": "+details[status]+"\n"), "text/plain; charset=utf-8"
	if t.problems {
		text, err := json.Marshal(problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: details[status]})
		if err == nil { // always, with these types
			body, contentType = append(text, '\n'), "application/problem+json"
		}
	}
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // if this fails, the client cannot be told
}
