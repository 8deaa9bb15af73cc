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

// ThroughOptions are what can be said about a pipeline around a handler. The zero
// ThroughOptions are the defaults.
type ThroughOptions struct {
	// Failed tells which status is a failure of the handler, for circuit breakers
	// and the like; nil: 500 and above. What a limiter or a pipeline inside has
	// answered without running the handler is none; that it ran out of time is one.
	Failed func(status int) bool `json:"-" yaml:"-"`
	// Status is that of the answer to a request that the pipeline turned away, by
	// its error. nil, or 0 for an error, goes by the cause: 429 for a rate limit
	// that says when to come back, 503 for other rejections, timeouts and what is
	// closed, 500 for the rest.
	Status func(err error) int `json:"-" yaml:"-"`
	// OnRejected is called for each request that the pipeline turned away; if it
	// writes nothing, Body does. It must not keep the ResponseWriter.
	OnRejected Body `json:"-" yaml:"-"`
	// Body answers such a request; nil is [PlainText].
	Body Body `json:"-" yaml:"-"`
}

// A HandlerError is how strategies see that a handler has failed: it is in no
// answer, as the handler has given that already.
type HandlerError struct{ Status int }

// Retryable is false: there is an answer already. See the function [Retryable].
func (e *HandlerError) Retryable() bool { return false }

func (e *HandlerError) Error() string {
	return fmt.Sprintf("weirhttp: the handler answered %d %s", e.Status, http.StatusText(e.Status))
}

// Errors of a pipeline around a handler. Strategies see them, clients do not.
var (
	// ErrOnce: a strategy runs the handler again that has begun to answer or has
	// the body of the request, or that runs already.
	ErrOnce error = onceError{}
	// ErrNoAnswer: a strategy has ended the execution without an error, and without
	// the handler or an [http.Handler] of its own to answer.
	ErrNoAnswer = errors.New("weirhttp: nobody has answered")
)

type onceError struct{}

func (onceError) Error() string   { return "weirhttp: the handler cannot run again" }
func (onceError) Retryable() bool { return false }

// Through returns middleware that runs handlers in p. A nil o means the defaults.
//
//	mux.Handle("/orders", weirhttp.Through(orders, nil)(handler))
//
// Strategies see a status from 500 on as a [*HandlerError], and a handler that
// returns without having begun to answer when its context has ended as that
// context's error. Where the pipeline ends in an error and the response has not
// begun, the answer says so, with Retry-After where it is known; a response that
// has begun is left as it is. A strategy may answer in the handler's place with
// an [http.Handler] as the value that it makes up.
//
// The handler runs a second time only if it has not begun to answer and the request
// has no body; and never twice at once. A retry should have [Retryable] as its
// Handle: else it waits its delay for an attempt that cannot be made.
//
// When the context of a pipeline has a deadline, a client that sends its body
// slowly fails the handler's reading then, and one that does not read fails its
// writing a second later. Everything else of the ResponseWriter is as it was:
// Flush, Hijack, ReadFrom, Push where there are such, and [http.ResponseController].
func Through(p *pipeline.Pipeline, o *ThroughOptions) func(http.Handler) http.Handler {
	t := newThrough(p, o)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("weirhttp: the handler is nil")
		}
		return &throughHandler{through: t, next: next}
	}
}

type throughHandler struct {
	through *through
	next    http.Handler
}

func (h *throughHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.through.serve(w, r, h.next)
}

// through is a pipeline around handlers.
type through struct {
	pipeline *pipeline.Pipeline
	options  ThroughOptions
}

func newThrough(p *pipeline.Pipeline, o *ThroughOptions) *through {
	t := &through{pipeline: p}
	if o != nil {
		t.options = *o
	}
	if t.options.Failed == nil {
		t.options.Failed = func(status int) bool { return status >= 500 }
	}
	if t.options.Body == nil {
		t.options.Body = PlainText
	}
	return t
}

func (t *through) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	x, instead, err := t.run(w, r, next)
	if x.response.begun() {
		return
	}
	if err == nil && instead == nil && x.ran {
		return // an empty 200: the server sends it
	}
	if x.ran {
		x.header.restore(w.Header()) // what the handler has prepared is not in another's answer
	}
	if err == nil && instead != nil {
		instead.ServeHTTP(w, r)
		return
	}
	if !x.ran {
		markRejected(w)
	}
	reject(w, r, t.options.OnRejected, t.options.Body, t.rejection(w, r, err))
}

// rejection says what becomes of an error of the pipeline.
func (t *through) rejection(w http.ResponseWriter, r *http.Request, err error) Rejection {
	if err == nil {
		err = ErrNoAnswer
	}
	after, _ := pipeline.RetryAfter(err)
	rejection := Rejection{Policy: t.pipeline.Name(), RetryAfter: after, Status: t.statusOf(r, err), Err: err}
	if by, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		rejection.Lease = by.Lease
	}
	writeRetryAfter(w.Header(), after)
	return rejection
}

func (t *through) statusOf(r *http.Request, err error) int {
	if t.options.Status != nil {
		if status := t.options.Status(err); status != 0 {
			return status
		}
	}
	if limited, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		if limited.RetryAfter > 0 && limited.Reason != limiter.ReasonUnavailable {
			return http.StatusTooManyRequests
		}
		return http.StatusServiceUnavailable
	}
	switch {
	case errors.Is(err, pipeline.ErrRejected):
		return http.StatusServiceUnavailable
	case r.Context().Err() != nil:
		return statusOfEnded(r.Context())
	case errors.Is(err, pipeline.ErrClosed), errors.Is(err, limiter.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrNoAnswer):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
