package weirhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/exchange"
	"github.com/weir-go/weir/transport/internal/status"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// ThroughOptions are the options of [Through]. The zero value has the defaults.
type ThroughOptions struct {
	// Failed reports whether a status is a failure of the handler, for circuit
	// breakers and other strategies. If nil, every status from 500 on is. It is not
	// asked about rejections by limits or a pipeline further inside, which are never
	// failures of the handler. If a handler runs out of time without having begun to
	// answer, that is a failure.
	Failed func(status int) bool `json:"-" yaml:"-"`
	// Status returns the status of the answer to a request that the pipeline ended
	// with err. If it is nil or returns 0, the status depends on the cause: 429 for a
	// rate limit that says when to come back and for a cost above what a limiter can
	// ever grant, 503 for other rejections, timeouts, closed pipelines and limiters
	// that fail, 500 for all other errors.
	Status func(err error) int `json:"-" yaml:"-"`
	// OnRejected is called for each request that the pipeline ended with an error. It
	// can answer the request; if it writes nothing, Body does. It must not keep the
	// ResponseWriter. If nil, Body answers.
	OnRejected Body `json:"-" yaml:"-"`
	// Body answers such a request. The default is [LimitsOptions.Body] of the limits around the handler, and [PlainText]
	// if there are none.
	Body Body `json:"-" yaml:"-"`
}

// A HandlerError tells strategies that a handler has answered with a status that is a failure. Clients get the answer
// of the handler.
type HandlerError struct{ Status int }

// Retryable returns false, which stops a retry: the client has an answer already.
func (e *HandlerError) Retryable() bool { return false }

// ErrorType returns the status, which telemetry reports as error.type; see [RequestRecorder] for statuses that are not
// registered.
func (e *HandlerError) ErrorType() string { return strconv.Itoa(knownStatus(e.Status)) }

// Error returns the status and its text.
func (e *HandlerError) Error() string {
	return fmt.Sprintf("weirhttp: the handler answered %d %s", e.Status, http.StatusText(e.Status))
}

// An answeredRejectionError tells strategies that limits or a pipeline further inside have rejected the request, and answered it:
// the execution must not count as a success.
type answeredRejectionError struct{ status int }

func (e *answeredRejectionError) Error() string {
	return fmt.Sprintf("weirhttp: rejected further inside: %d %s", e.status, http.StatusText(e.status))
}

// Is reports whether target is [pipeline.ErrRejected].
func (e *answeredRejectionError) Is(target error) bool { return target == pipeline.ErrRejected }

// NotCalled returns true: the rejection says nothing about the handler, which a circuit breaker watches.
func (e *answeredRejectionError) NotCalled() bool { return true }

// Retryable returns false: the client has an answer already.
func (e *answeredRejectionError) Retryable() bool { return false }

// ErrorType returns the status, as that of a [HandlerError].
func (e *answeredRejectionError) ErrorType() string { return strconv.Itoa(knownStatus(e.status)) }

// Errors of a pipeline around a handler. Strategies see them, clients do not.
var (
	// errRunAgain: a strategy ran the handler again after it began to answer, while it
	// was running, or with a request whose body the first run may have read.
	errRunAgain error = exchange.Refusal("weirhttp: the handler cannot run again")
	// errNoAnswer: a strategy ended the execution without an error, without running
	// the handler and without an [http.Handler] as the value.
	errNoAnswer = fmt.Errorf("weirhttp: the pipeline ended without an answer: %w", pipeline.ErrRejected)
)

// Through returns middleware that runs handlers in p. If o is nil, the defaults apply.
//
//	mux.Handle("/orders", weirhttp.Through(orders, nil)(handler))
//
// Strategies see a status from 500 on as a [*HandlerError]. If the context of the handler ends and the handler returns
// without having begun to answer, strategies see the error of that context. If the pipeline ends with an error and the
// response has not begun, the client gets an answer for that error, with Retry-After if it is known; a response that
// has begun stays as it is. A strategy can answer in place of the handler by returning an [http.Handler] as the value.
// Strategies find the request with [RequestFrom].
//
// If the pipeline ends with an error and has not run the handler, the request has been shed: [Limits] further out refund what they
// have granted to it when their handler has returned, and their quota headers are removed. They do not if a handler between gave
// the middleware another response, such as a buffer, because that handler may answer the request itself. An answer that a strategy
// gives in place of the handler costs what a request costs.
//
// If [Limits] or a pipeline further inside reject the request with a status from 400 on, strategies see an error that
// matches [pipeline.ErrRejected] and says that nothing was called. So telemetry does not count the execution as a
// success, circuit breakers and adaptive limiters do not count it at all, and a retry does not repeat it.
//
// The handler runs again only if it has not begun to answer and the request has no body, and never twice at once. An
// attempt that cannot be made does not count: the client gets the answer for the one before it, and a retry does not wait
// for one after an answer.
//
// When the context of the handler reaches its deadline, reading the request's body fails, and a second later writing
// fails, so a slow client does not keep the handler. The handler's ResponseWriter has Flush and Hijack if the one that
// the middleware gets has them, always ReadFrom and Push, and [http.ResponseController] works.
//
// The middleware is for route registration, and panics if the handler is nil.
func Through(p *pipeline.Pipeline, o *ThroughOptions) func(http.Handler) http.Handler {
	t := newHandlerPipeline(p, o)
	return func(next http.Handler) http.Handler {
		admission.MustNotBeNil("weirhttp", "next", next)
		return &throughHandler{handlers: t, next: next}
	}
}

// A throughHandler is a handler in a pipeline.
type throughHandler struct {
	handlers *handlerPipeline
	next     http.Handler
}

// ServeHTTP runs the handler in the pipeline, and answers if the handler has not.
func (h *throughHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t := h.handlers.options
	run, err := h.handlers.run(w, r, h.next)
	if !run.answerInstead(w, r, err) {
		return
	}
	if run.attempts.Begun() == 0 {
		handlerio.MarkRejected(w)
		refundOuter(w, r)
	}
	body := t.Body
	if c := callOf(r.Context()); body == nil && c != nil {
		body = c.route.limits.options.Body
	}
	reject(w, r, t.OnRejected, body, run.rejection(w, err))
}

// A handlerPipeline is a pipeline that runs handlers.
type handlerPipeline struct {
	pipeline *pipeline.Pipeline
	options  ThroughOptions
}

// newHandlerPipeline returns a handlerPipeline with the defaults of the options filled in.
func newHandlerPipeline(p *pipeline.Pipeline, o *ThroughOptions) *handlerPipeline {
	t := &handlerPipeline{pipeline: p}
	if o != nil {
		t.options = *o
	}
	if t.options.Failed == nil {
		t.options.Failed = func(status int) bool { return status >= 500 }
	}
	return t
}

// A handlerRun is one request whose handler runs in a pipeline, with all attempts.
//
// The handler uses the ResponseWriter until it returns. So the handler never runs twice at once, it runs again only if it has not
// begun to answer, and run waits for it even if the strategies do not.
//
// It is also the context that the pipeline runs with, so that strategies find the request.
type handlerRun struct {
	context.Context // the Ctx of client

	handlers *handlerPipeline
	response *handlerio.Response
	writer   http.ResponseWriter
	request  *http.Request
	next     http.Handler
	client   *handlerio.ClientContext
	instead  http.Handler // what a strategy has returned to answer in place of the handler

	attempts exchange.Exchange[struct{}] // at running the handler
	failure  error                       // of the last attempt that ran
}

// run runs next in the pipeline.
func (t *handlerPipeline) run(w http.ResponseWriter, r *http.Request, next http.Handler) (x *handlerRun, err error) {
	x = &handlerRun{handlers: t, response: handlerio.NewResponse(w, r), request: r, next: next}
	x.attempts.Repeat, x.attempts.Wait = x.again, true
	x.writer = x.response.Writer()
	x.client = handlerio.NewClientContext(r)
	defer x.client.Stop()
	x.Context = x.client.Ctx
	x.instead, err = x.execute()
	if x.failure != nil && (errors.Is(err, errRunAgain) || err == nil && x.instead == nil) {
		err = x.failure // an attempt that was refused does not count, and nothing is no answer
	}
	return x, err
}

// execute runs the handler in the pipeline, and returns when no attempt is running any more.
func (x *handlerRun) execute() (http.Handler, error) {
	defer x.attempts.Settle()
	return pipeline.ExecuteValue(x, x.handlers.pipeline, x.attempt)
}

// Value returns the request for requestKey, and the context of the client for [status.ClientKey].
func (x *handlerRun) Value(key any) any {
	switch key := key.(type) {
	case requestKey:
		return x.request
	case status.ClientKey:
		return key.Of(x.Context)
	default:
		return x.Context.Value(key)
	}
}

// String makes fmt print the context without reading all fields, which would race with attempts.
func (x *handlerRun) String() string { return fmt.Sprintf("%v.weirhttp", x.Context) }

// attempt is the callback of the pipeline: it runs the handler.
func (x *handlerRun) attempt(ctx context.Context) (http.Handler, error) {
	if _, err := x.attempts.Begin(); err != nil {
		return nil, errRunAgain
	}
	defer x.attempts.Abort() // its outcome is not needed
	limited, restore := x.forAttempt(ctx)
	returned := false
	defer func() {
		restore()
		if !returned {
			handlerio.RemoveFiles(x.request)
		}
	}()
	x.next.ServeHTTP(x.writer, limited)
	returned = true
	x.failure = x.outcome(ctx)
	return nil, x.failure
}

// forAttempt returns the request for an attempt that the strategies run with ctx. restore must be called when the handler
// has returned.
func (x *handlerRun) forAttempt(ctx context.Context) (r *http.Request, restore func()) {
	if ctx != context.Context(x) {
		return x.client.Limit(ctx, x.response, x.request)
	}
	r = handlerio.WithContext(x.request, ctx)
	return r, func() { handlerio.CarryBack(r, x.request) }
}

// again reports whether another attempt can be made, and prepares the response for it: the last attempt must not have begun to
// answer or to read a body.
func (x *handlerRun) again() bool {
	if x.response.Begun() || handlerio.HasBody(x.request) {
		return false
	}
	x.response.RestoreHeader() // the last attempt may have prepared a header
	for c := callOf(x.request.Context()); c != nil; c = callOf(c.Context) {
		c.NextAttempt()
	}
	return true
}

// outcome returns the error that strategies see after the handler has returned.
func (x *handlerRun) outcome(ctx context.Context) error {
	switch w := x.response; {
	case !w.Begun():
		handlerio.AwaitEnd(ctx)
		err := pipeline.ContextError(ctx)
		if err != nil && handlerio.HasBody(x.request) {
			return exchange.Final(err)
		}
		return err // nil: the answer is an empty 200
	case w.Hijacked():
		return nil
	case w.Rejected():
		if w.Status() < 400 { // a Body of the program says that all is well
			return nil
		}
		return &answeredRejectionError{status: w.Status()}
	case x.handlers.options.Failed(w.Status()):
		return &HandlerError{Status: w.Status()}
	default:
		return nil
	}
}

// answerInstead answers with the [http.Handler] that a strategy has returned, if there is one. err is the error of the pipeline.
// unanswered reports whether the caller must answer for it.
func (x *handlerRun) answerInstead(w http.ResponseWriter, r *http.Request, err error) (unanswered bool) {
	if x.response.Begun() || err == nil && x.instead == nil && x.attempts.Begun() > 0 { // the server sends an empty 200
		return false
	}
	if x.attempts.Begun() > 0 {
		x.response.RestoreHeader() // the header that the handler has prepared is not for another answer
	}
	if err == nil && x.instead != nil {
		x.instead.ServeHTTP(w, r)
		return false
	}
	return true
}

// cause returns the cause of an answer for an error of the pipeline.
func (x *handlerRun) cause(err error) status.Cause {
	return status.Of(x.client.Still(x.request.Context()), err)
}

// rejection returns the rejection for an error of the pipeline, and sets Retry-After.
func (x *handlerRun) rejection(w http.ResponseWriter, err error) Rejection {
	if err == nil {
		err = errNoAnswer
	}
	t := x.handlers
	after, _ := pipeline.RetryAfter(err)
	rejection := Rejection{Policy: t.pipeline.Name(), RetryAfter: after, Status: x.cause(err).HTTP(), Err: err}
	if t.options.Status != nil {
		rejection.Status = cmp.Or(t.options.Status(err), rejection.Status)
	}
	if by, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
		rejection.Lease = by.Lease
	}
	writeRetryAfter(w.Header(), after)
	return rejection
}
