package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// An attempt is one try of an exchange. The base gets the attempt's copy of the request. The copy shares only two
// things with the caller's request: the body, and the trailer, which the caller fills in while the body is read.
type attempt struct {
	exchange *exchange
	number   int             // from 0
	ctx      *attemptContext // nil: the attempt has the caller's context
	returned bool            // the base has returned
	ended    bool            // exchange.running no longer counts the attempt

	request   http.Request
	url       url.URL   // of the request
	values    [5]string // where copyHeader puts the values of the header, which saves an allocation
	needsBody bool      // openBody must get the body

	response *http.Response
	failed   bool // the response counts as a failure
	body     body
}

// An outcome is how an attempt ended: with the response of an attempt, or with an error.
type outcome struct {
	answered *attempt
	err      error
}

// newContext returns the context that the base gets. ctx is the context with which the strategies run the attempt.
func (a *attempt) newContext(ctx context.Context) context.Context {
	x := a.exchange
	if ctx == context.Context(x) && !x.cancellable {
		return ctx // it ends when the caller's does
	}
	a.ctx = &attemptContext{caller: x.caller, strategies: ctx}
	return a.ctx
}

// copyRequest makes the attempt's own copy of the request: strategies can run attempts at the same time, and after the
// caller has changed the request for the next use. For most requests it allocates only the map of the header.
func (a *attempt) copyRequest(ctx context.Context, r *http.Request) {
	if r.TransferEncoding != nil || r.Form != nil || r.PostForm != nil || r.MultipartForm != nil {
		a.request = *r.Clone(ctx)
		a.request.Trailer = r.Trailer // shared, because the caller fills it in while the body is read
	} else {
		a.request = *r.WithContext(ctx)
		if r.URL != nil {
			a.url = *r.URL
			a.request.URL = &a.url
		}
		a.request.Header = a.copyHeader(r.Header)
	}
	if !handlerio.HasBody(r) {
		return
	}
	if r.GetBody != nil {
		a.request.GetBody = a.exchange.getBody
	}
	if a.number > 0 {
		a.request.Body, a.needsBody = nil, true
	}
}

// copyTarget is copyRequest for an exchange that ends without an attempt. It leaves out what would cost an allocation.
func (a *attempt) copyTarget(r *http.Request) {
	a.request.Method, a.request.Host, a.request.ContentLength = r.Method, r.Host, r.ContentLength
	if r.URL != nil {
		a.url = *r.URL
		a.request.URL = &a.url
	}
}

// copyHeader is Header.Clone without an allocation for the values, if there are at most as many as a.values holds.
func (a *attempt) copyHeader(h http.Header) http.Header {
	if h == nil {
		return nil
	}
	all := a.values[:0]
	own := make(http.Header, len(h))
	for name, values := range h {
		if values == nil { // a nil value keeps net/http from setting the header
			own[name] = nil
			continue
		}
		from := len(all)
		all = append(all, values...)
		own[name] = all[from:len(all):len(all)] // without spare capacity, so that an Add does not overwrite the next header's
	}
	return own
}

// openBody gets the body of an attempt that is not the first. If GetBody fails, no other attempt is made.
func (a *attempt) openBody() error {
	if !a.needsBody {
		return nil
	}
	again, err := a.request.GetBody()
	if err != nil {
		return &finalError{fmt.Errorf("weirhttp: the body for attempt %d: %w", a.number+1, err)}
	}
	a.request.Body = again
	return nil
}

// end returns what the strategies see of the attempt. err is the error that the base has returned.
func (a *attempt) end(err error) (*http.Response, error) {
	x := a.exchange
	if err == nil && a.response == nil {
		err = errBaseNothing
	}
	if err == nil {
		err = a.ctx.detach() // fails if the strategies' context ended in the meantime
	}
	if err != nil {
		return nil, a.endWithError(err)
	}
	a.body.wrap(a.response, a.ctx)
	asked, known := x.applyRetryAfter(a.response)
	if !a.record(outcome{answered: a}) {
		a.body.discard(a.failed)
		return nil, errTooLate
	}
	if !a.failed {
		return a.response, nil
	}
	return a.response, &StatusError{Response: a.response, retryAfter: asked, hasRetryAfter: known, attempt: a}
}

// endWithError returns the error that the strategies see of an attempt that ended with err. It closes the response of
// the base, if there is one.
func (a *attempt) endWithError(err error) error {
	defer closeResponse(a.response)
	a.awaitCancel()
	a.ctx.end()
	a.record(outcome{err: err})
	if x := a.exchange; !x.repeatable || x.Err() != nil || permanent(err) {
		return &finalError{err}
	}
	return err
}

// awaitCancel waits until the context of the exchange has ended, if the request's Cancel channel is closed. The base
// can see the closed channel first. Its error does not match context.Canceled, so strategies recognize the cancellation
// by the context, which must have ended by then.
func (a *attempt) awaitCancel() {
	select {
	case <-a.request.Cancel: //nolint:staticcheck // deprecated, and http.Client sets it
		<-a.exchange.Done()
	default:
	}
}

// abort ends an attempt that panics. It closes everything, even if closing one thing panics.
func (a *attempt) abort() {
	if a.body.base == nil {
		defer closeResponse(a.response)
	} else {
		defer a.body.discard(false)
	}
	if !a.returned { // the base may not have closed the request's body
		defer closeRequestBody(&a.request)
	}
	a.ctx.end()
	a.record(outcome{err: errPanicked})
}

// record records how the attempt ended. It returns false if the caller has its answer already.
func (a *attempt) record(o outcome) bool {
	x := a.exchange
	x.mu.Lock()
	defer x.mu.Unlock()
	if !a.ended {
		a.ended = true
		x.running--
	}
	if x.settled {
		return false
	}
	x.lastOutcome = o
	if o.answered != nil {
		x.responses = append(x.responses, o.answered)
	}
	return true
}

// deliver returns the response for the caller.
func (a *attempt) deliver() *http.Response {
	a.restoreRequest(a.response)
	return a.response
}

// restoreRequest sets the response's request to the caller's. Strategies see the attempt's copy, because they can look
// at the response after the caller has reused the request.
func (a *attempt) restoreRequest(resp *http.Response) {
	if resp.Request == &a.request {
		resp.Request = a.exchange.request
	}
}

// isBehind reports whether resp is the attempt's response, or a strategy's own response with the body of that response.
func (a *attempt) isBehind(resp *http.Response) bool {
	if resp == nil || resp == a.response {
		return resp != nil
	}
	own, ok := resp.Body.(interface{ original() *body })
	return ok && own.original() == &a.body
}
