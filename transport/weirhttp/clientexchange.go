package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
)

// An exchange is one request with all attempts at it. It is also the context that the pipeline runs with, so that
// strategies find it.
//
// The caller can reuse the request when RoundTrip has returned and the body of the response is closed, but an attempt
// of a hedge can run for longer. So request is read only under mu while settled is false, and attempts work on their
// own copies.
type exchange struct {
	context.Context // the caller's; it also ends with the request's Cancel channel

	transport   *Transport
	caller      context.Context // the context of the request
	request     *http.Request   // the caller's
	host        string          // see [HostFrom]
	key         string          // what [TransportOptions.Key] returned
	repeatable  bool            // the request may be sent more than once
	cancellable bool            // the request has a Cancel channel

	mu        sync.Mutex
	sent      int           // attempts that were made
	running   int           // attempts that have not ended
	settled   bool          // the caller has its answer
	bodies    int           // calls of the request's GetBody under way
	noBodies  chan struct{} // closed when bodies is 0; nil if nothing waits for that
	responses []*attempt    // attempts whose responses must be closed
	array     [1]*attempt   // of responses
	last      outcome
	first     attempt // most requests have only one
}

// An attempt is one try of an exchange. The base gets the attempt's copy of the request, which shares only the body and
// the trailer, which the caller fills in while the body is read.
type attempt struct {
	exchange *exchange
	number   int             // from 0
	ctx      *attemptContext // nil: the attempt has the caller's context
	returned bool            // the base has returned
	ended    bool            // exchange.running no longer counts the attempt

	request   http.Request
	url       url.URL   // of the request
	values    [5]string // of the request's header, if there are no more
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

// exchangeKey asks a context for the nearest exchange.
type exchangeKey struct{}

// Value returns the exchange itself for exchangeKey.
func (x *exchange) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return x
	}
	return x.Context.Value(key)
}

// String returns only what never changes: fmt would read all fields, and race with attempts.
func (x *exchange) String() string { return fmt.Sprintf("%v.weirhttp", x.Context) }

// exchangeFrom returns the exchange that the context belongs to, or nil.
func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// send is the callback of the pipeline: it makes one attempt. Strategies can run it many times, at the same time, and
// after the caller has its answer.
func (x *exchange) send(ctx context.Context) (*http.Response, error) {
	a, stale, err := x.begin(ctx)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done { // a panic, or runtime.Goexit
			a.abort()
		}
	}()
	x.buffer(stale)
	if err = a.openBody(); err == nil {
		a.response, err = x.transport.options.Base.RoundTrip(&a.request)
		a.returned = true
	}
	a.failed = err == nil && a.response != nil && x.transport.options.Failed(a.response)
	resp, err := a.end(err)
	done = true
	return resp, err
}

// begin returns another attempt with its copy of the caller's request, or refuses it. The stale attempts are those
// whose connections the new one can use.
func (x *exchange) begin(ctx context.Context) (a *attempt, stale []*attempt, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.refusalLocked(); err != nil {
		return nil, nil, err
	}
	if a = &x.first; x.sent > 0 {
		a = new(attempt)
	}
	a.exchange, a.number = x, x.sent
	a.copyRequest(a.newContext(ctx), x.request)
	x.sent++
	x.running++
	return a, x.staleLocked(), nil
}

// staleLocked returns the failures that the caller will most likely not get, because another attempt begins. A response
// that is not a failure is not stale: a hedge can start an attempt when such a response is already on its way to the
// caller.
func (x *exchange) staleLocked() (stale []*attempt) {
	if x.running > 1 {
		return nil
	}
	for _, a := range x.responses {
		if a.failed {
			stale = append(stale, a)
		}
	}
	return stale
}

// buffer frees the connections of failures, so that the next attempt can use one. Only then does it remove them from
// responses: if the body of one panics, or a strategy still reads it, settle or abandon closes it.
func (x *exchange) buffer(stale []*attempt) {
	if len(stale) == 0 {
		return
	}
	buffered := slices.DeleteFunc(stale, func(a *attempt) bool { return !a.body.buffer() })
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.settled { // settle reads them without mu
		x.responses = slices.DeleteFunc(x.responses, func(a *attempt) bool { return slices.Contains(buffered, a) })
	}
}

// refusalLocked returns why there must not be another attempt now, or nil.
func (x *exchange) refusalLocked() error {
	switch {
	case x.settled:
		return errTooLate
	case x.sent == 0:
		return nil
	case x.running > 0 && (!x.repeatable || !overlappable(x.request)):
		return errAtTheSameTime
	case !x.repeatable:
		return errSentBefore
	default:
		return nil
	}
}

// end returns what the strategies see of what the base has returned.
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
	return a.response, &StatusError{Response: a.response, retryAfter: asked, asks: known, attempt: a}
}

// endWithError is end for an attempt without a response that counts.
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
// can see the closed channel first, and its error does not say that the request was cancelled: strategies check the
// context.
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
	if !a.returned { // the base may not have closed it
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
	x.last = o
	if o.answered != nil {
		x.responses = append(x.responses, o.answered)
	}
	return true
}

// close lets no other attempt begin, and waits for calls of the request's GetBody. After it the exchange does not read
// the caller's request.
func (x *exchange) close() (sent int, last outcome, responses []*attempt) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settled = true
	if x.bodies > 0 {
		x.noBodies = make(chan struct{})
		x.mu.Unlock()
		<-x.noBodies
		x.mu.Lock()
	}
	return x.sent, x.last, x.responses
}

// settle returns what the caller gets for what the pipeline has returned, and closes everything else.
func (x *exchange) settle(resp *http.Response, err error) (*http.Response, error) {
	sent, last, responses := x.close()
	if sent == 0 {
		closeRequestBody(x.request)
	}
	if err != nil {
		resp, err = x.answer(err, last)
	}
	if resp == nil && err == nil {
		err = errNoResponse
	}
	for _, a := range responses {
		if a.isBehind(resp) {
			a.restoreRequest(resp)
			continue
		}
		defer a.body.discard(a.failed) // deferred in case closing another one panics
	}
	return resp, err
}

// answer returns what the caller gets if the pipeline has returned an error.
func (x *exchange) answer(err error, last outcome) (*http.Response, error) {
	if refused(err) && last != (outcome{}) {
		// The attempt that was refused does not count: the one before it is the outcome.
		if last.answered != nil && x.Err() == nil {
			return last.answered.deliver(), nil
		}
		if last.err != nil {
			return nil, last.err
		}
	}
	if status, ok := errors.AsType[*StatusError](err); ok && status.isOf(x) && x.Err() == nil {
		return status.attempt.deliver(), nil
	}
	if final, ok := err.(*finalError); ok { //nolint:errorlint // only the outermost: it means nothing to the caller
		err = final.error
	}
	return nil, err
}

// abandon closes everything if the pipeline has panicked.
func (x *exchange) abandon() {
	sent, _, responses := x.close()
	for _, a := range responses {
		defer a.body.discard(false)
	}
	if sent == 0 {
		closeRequestBody(x.request)
	}
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

// isBehind reports whether resp is the attempt's response, or one that a strategy has made with its body.
func (a *attempt) isBehind(resp *http.Response) bool {
	if resp == nil {
		return false
	}
	if resp == a.response {
		return true
	}
	switch b := resp.Body.(type) {
	case *body:
		return b == &a.body
	case *duplexBody:
		return b.body == &a.body
	case *halfCloserBody:
		return b.body == &a.body
	default:
		return false
	}
}
