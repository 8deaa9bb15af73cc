package weirhttp

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/weir-go/weir/pipeline"
)

// A passage is one request's way through a pipeline.
type passage struct {
	through  *through
	response *response
	writer   http.ResponseWriter
	request  *http.Request
	next     http.Handler
	asked    context.Context // what the pipeline was given
	client   *shield
	header   savedHeader

	mu       sync.Mutex
	running  bool
	ran      bool
	over     bool           // the ResponseWriter is no longer ours
	returned sync.WaitGroup // a strategy may have run the handler on another goroutine
}

// run takes the request through the pipeline. instead is what a strategy has made
// up as an answer.
func (t *through) run(w http.ResponseWriter, r *http.Request, next http.Handler) (x *passage, instead http.Handler, err error) {
	x = &passage{through: t, response: newResponse(w), request: r, next: next}
	x.response.request = r
	x.writer = x.response.writer()
	x.header = saveHeader(w.Header())
	x.asked, x.client = shielded(r)
	defer x.client.stop()
	defer x.finish()
	instead, err = pipeline.ExecuteValue(x.asked, t.pipeline, x.attempt)
	return x, instead, err
}

// attempt is the pipeline's callback.
func (x *passage) attempt(ctx context.Context) (http.Handler, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	defer x.end()
	limited, restore := x.request, func() {}
	if ctx != x.asked {
		limited, restore = x.client.guard(ctx, x.response, x.request)
	}
	returned := false
	defer func() {
		restore()
		if !returned {
			removeFiles(x.request)
		}
	}()
	x.next.ServeHTTP(x.writer, limited)
	returned = true
	return nil, x.outcome(ctx)
}

// begin refuses an attempt that would mix with another one's answer.
func (x *passage) begin() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over || x.running || x.ran && (x.response.begun() || hasBody(x.request)) {
		return ErrOnce
	}
	if x.ran { // what the last attempt has prepared is not this one's
		x.header.restore(x.response.Header())
	}
	x.running, x.ran = true, true
	x.returned.Add(1)
	return nil
}

func (x *passage) end() {
	x.mu.Lock()
	x.running = false
	x.mu.Unlock()
	x.returned.Done()
}

// finish waits for a handler that runs on: it has the ResponseWriter. After that
// nobody may have it, and nothing that is taken would be given back.
func (x *passage) finish() {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	x.returned.Wait()
}

// A savedHeader is a header as it was before a handler; nil: empty.
type savedHeader http.Header

func saveHeader(h http.Header) savedHeader {
	if len(h) == 0 {
		return nil
	}
	return savedHeader(h.Clone())
}

// restore makes h what it was. It may be called again.
func (s savedHeader) restore(h http.Header) {
	clear(h)
	for name, lines := range s {
		h[name] = slices.Clone(lines)
	}
}

// outcome is what strategies see of what the handler did.
func (x *passage) outcome(ctx context.Context) error {
	w := x.response
	switch {
	case !w.begun():
		awaitEnd(ctx)
		return pipeline.ContextError(ctx) // it gave up; nil: an empty 200
	case w.hijacked, w.rejected, !x.through.options.Failed(w.status):
		return nil
	default:
		return &HandlerError{Status: w.status}
	}
}

// serveThrough runs the rest of the call, from the policy after the i-th on, in the
// i-th policy's pipeline.
func (c *call) serveThrough(w http.ResponseWriter, r *http.Request, i int) {
	p := c.route.policies[i]
	c.mu.Lock()
	before := len(c.held)
	c.mu.Unlock()
	x, instead, err := p.through.run(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.release(c.cut(before, false)) // what an attempt before this one took, and used
		c.serve(w, r, i+1)
	}))
	switch {
	case x.response.begun(), err == nil && instead == nil && x.ran:
		return
	case x.ran:
		x.header.restore(w.Header()) // what the handler has prepared is not in another's answer
	}
	if err == nil && instead != nil {
		instead.ServeHTTP(w, r)
		return
	}
	rejection := p.through.rejection(w, r, err)
	rejection.Policy = p.name
	if p.Status != 0 && errors.Is(err, pipeline.ErrRejected) {
		rejection.Status = p.Status
	}
	if x.ran {
		reject(w, r, p.OnRejected, c.route.limits.options.Body, rejection)
		return
	}
	c.turnAway(w, r, p, "", rejection)
}
