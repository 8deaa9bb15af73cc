package weirhttp

import (
	"context"
	"net/http"
	"sync"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A handlerRun is one request whose handler runs in a pipeline, as often as the strategies run it.
//
// The handler uses the ResponseWriter until it returns. So the handler never runs twice at once, and it runs again only
// if it has not begun to answer. If a strategy no longer waits for the handler, run still does.
type handlerRun struct {
	handlers *handlerPipeline
	response *handlerio.Response
	writer   http.ResponseWriter
	request  *http.Request
	next     http.Handler
	client   *handlerio.ClientContext // the pipeline runs with its Ctx
	instead  http.Handler             // what a strategy has returned to answer in place of the handler

	mu       sync.Mutex
	running  bool
	ran      bool
	over     bool           // the handler must not begin
	returned sync.WaitGroup // for a handler that a strategy runs on another goroutine
}

// run runs next in the pipeline.
func (t *handlerPipeline) run(w http.ResponseWriter, r *http.Request, next http.Handler) (x *handlerRun, err error) {
	x = &handlerRun{handlers: t, response: handlerio.NewResponse(w, r), request: r, next: next}
	x.writer = x.response.Writer()
	x.client = handlerio.NewClientContext(r)
	defer x.client.Stop()
	defer x.finish()
	x.instead, err = pipeline.ExecuteValue(x.client.Ctx, t.pipeline, x.attempt)
	return x, err
}

// attempt is the callback of the pipeline: it runs the handler.
func (x *handlerRun) attempt(ctx context.Context) (http.Handler, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	defer x.end()
	limited, restore := x.request, func() {}
	if ctx != x.client.Ctx {
		limited, restore = x.client.Limit(ctx, x.response, x.request)
	}
	returned := false
	defer func() {
		restore()
		if !returned {
			handlerio.RemoveFiles(x.request)
		}
	}()
	x.next.ServeHTTP(x.writer, limited)
	returned = true
	return nil, x.outcome(ctx)
}

// begin refuses an attempt that would mix with the answer of another.
func (x *handlerRun) begin() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over || x.running || x.ran && (x.response.Begun() || handlerio.HasBody(x.request)) {
		return ErrOnce
	}
	if x.ran { // the last attempt may have prepared a header
		x.response.RestoreHeader()
	}
	x.running, x.ran = true, true
	x.returned.Add(1)
	return nil
}

func (x *handlerRun) end() {
	x.mu.Lock()
	x.running = false
	x.mu.Unlock()
	x.returned.Done()
}

// finish lets no other attempt begin, and waits for a handler that is still running.
func (x *handlerRun) finish() {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	x.returned.Wait()
}

// outcome returns the error that strategies see after the handler has returned.
func (x *handlerRun) outcome(ctx context.Context) error {
	switch w := x.response; {
	case !w.Begun():
		handlerio.AwaitEnd(ctx)
		return pipeline.ContextError(ctx) // nil: the answer is an empty 200
	case w.Hijacked(), w.Rejected(), !x.handlers.options.Failed(w.Status()):
		return nil
	default:
		return &HandlerError{Status: w.Status()}
	}
}

// answerInstead runs the [http.Handler] that a strategy has returned as its answer, if there is one. unanswered reports
// whether the caller must answer for err, the error of the pipeline.
func (x *handlerRun) answerInstead(w http.ResponseWriter, r *http.Request, err error) (unanswered bool) {
	if x.response.Begun() || err == nil && x.instead == nil && x.ran { // the server sends an empty 200
		return false
	}
	if x.ran {
		x.response.RestoreHeader() // the header that the handler has prepared is not for another answer
	}
	if err == nil && x.instead != nil {
		x.instead.ServeHTTP(w, r)
		return false
	}
	return true
}
