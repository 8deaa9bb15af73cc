package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/exchange"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A handlerRun is one request whose handler runs in a pipeline, as often as the strategies run it.
//
// The handler uses the ResponseWriter until it returns. So the handler never runs twice at once, and it runs again only
// if it has not begun to answer. If a strategy no longer waits for the handler, run still does.
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
	if x.failure != nil && errors.Is(err, errOnce) {
		err = x.failure // the attempt that was refused does not count
	}
	return x, err
}

// execute runs the handler in the pipeline, and returns when no attempt is running any more.
func (x *handlerRun) execute() (http.Handler, error) {
	defer x.attempts.Settle()
	return pipeline.ExecuteValue(x, x.handlers.pipeline, x.attempt)
}

// Value returns the request for requestKey.
func (x *handlerRun) Value(key any) any {
	if _, ok := key.(requestKey); ok {
		return x.request
	}
	return x.Context.Value(key)
}

// String returns only what never changes: fmt would read all fields, and race with attempts.
func (x *handlerRun) String() string { return fmt.Sprintf("%v.weirhttp", x.Context) }

// attempt is the callback of the pipeline: it runs the handler.
func (x *handlerRun) attempt(ctx context.Context) (http.Handler, error) {
	if _, err := x.attempts.Begin(); err != nil {
		return nil, errOnce
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

// again reports whether another attempt would not mix with the answer of the last one, and prepares the response for it.
func (x *handlerRun) again() bool {
	if x.response.Begun() || handlerio.HasBody(x.request) {
		return false
	}
	x.response.RestoreHeader() // the last attempt may have prepared a header
	return true
}

// outcome returns the error that strategies see after the handler has returned.
func (x *handlerRun) outcome(ctx context.Context) error {
	switch w := x.response; {
	case !w.Begun():
		handlerio.AwaitEnd(ctx)
		return pipeline.ContextError(ctx) // nil: the answer is an empty 200
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

// answerInstead runs the [http.Handler] that a strategy has returned as its answer, if there is one. unanswered reports
// whether the caller must answer for err, the error of the pipeline.
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
