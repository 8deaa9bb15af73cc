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

// An exchange is one request with all attempts at it. It is also the context that
// the pipeline runs with, so that strategies find it.
//
// The request belongs to the caller again when RoundTrip has returned and the body of
// the response is closed, but an attempt of a hedge can run for longer. So request is
// read under mu while settled is false, and attempts work on copies of their own.
type exchange struct {
	context.Context // the caller's; it ends with the request's Cancel channel, too

	transport   *RoundTripper
	caller      context.Context // the request's own
	request     *http.Request   // the caller's
	host        string          // see [HostFrom]
	key         string          // of [TransportOptions.Key]
	repeatable  bool            // the request may be sent more than once
	cancellable bool            // the request has a Cancel channel

	mu        sync.Mutex
	sent      int           // attempts that were made
	running   int           // of them, those that have not ended
	settled   bool          // the caller has its answer
	bodies    int           // calls of the request's GetBody under way
	noBodies  chan struct{} // closed when bodies is 0; nil if nothing waits for that
	responses []*attempt    // those that have to be closed
	array     [1]*attempt
	last      outcome
	first     attempt // most requests have no other
}

// An attempt is one try of an exchange. The base gets its copy of the request, which
// shares only the body, and the trailer that the caller fills in while the body is read.
type attempt struct {
	exchange *exchange
	number   int // from 0
	life     *lifetime
	returned bool // the base has returned
	counted  bool // exchange.running is without it

	request   http.Request
	url       url.URL   // the request's
	values    [5]string // those of the request's header, if there are no more
	needsBody bool      // openBody gets it

	response *http.Response
	failed   bool // the response counts as a failure
	body     body
}

// An outcome is how an attempt ended.
type outcome struct {
	answered *attempt // nil: err
	err      error
}

// exchangeKey asks a context for the nearest *exchange.
type exchangeKey struct{}

func (x *exchange) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return x
	}
	return x.Context.Value(key)
}

// String does not look at what changes, as fmt would.
func (x *exchange) String() string { return fmt.Sprintf("%v.weirhttp", x.Context) }

func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// send is the callback of the pipeline. Strategies may run it many times, also at the
// same time, and after the caller has its answer.
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
	x.condense(stale)
	if err = a.openBody(); err == nil {
		a.response, err = x.transport.options.Base.RoundTrip(&a.request)
		a.returned = true
	}
	a.failed = err == nil && a.response != nil && x.transport.options.Failed(a.response)
	resp, err := a.end(err)
	done = true
	return resp, err
}

// begin decides whether there may be another attempt, and makes it with what it needs
// of the caller's request.
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
	a.copyRequest(a.lifetime(ctx), x.request)
	x.sent++
	x.running++
	return a, x.staleLocked(), nil
}

// staleLocked returns the failures that the caller will most likely not get, as
// another attempt begins. A response that is no failure may be on its way to the caller
// at this moment: a hedge may start an attempt whose outcome it does not need any more.
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

// condense frees the connections of failures, so that the next attempt can use one.
// Until then they stay in responses: a body that panics does not leave others open, and one
// that a strategy still reads is closed in the end.
func (x *exchange) condense(stale []*attempt) {
	if len(stale) == 0 {
		return
	}
	condensed := slices.DeleteFunc(stale, func(a *attempt) bool { return !a.body.condense() })
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.settled { // settle reads them without mu
		x.responses = slices.DeleteFunc(x.responses, func(a *attempt) bool { return slices.Contains(condensed, a) })
	}
}

func (x *exchange) refusalLocked() error {
	switch {
	case x.settled:
		return errTooLate
	case x.sent == 0:
		return nil
	case x.running > 0 && (!x.repeatable || !mayRunTwice(x.request)):
		return errAtTheSameTime
	case !x.repeatable:
		return errSentBefore
	default:
		return nil
	}
}

// end makes of what the base returned what the strategies see.
func (a *attempt) end(err error) (*http.Response, error) {
	x := a.exchange
	if err == nil && a.response == nil {
		err = errBaseNothing
	}
	if err == nil {
		err = a.life.detach() // it may have ended at the last moment
	}
	if err != nil {
		return nil, a.endWithError(err)
	}
	a.body.wrap(a.response, a.life)
	asked, known := x.noteRetryAfter(a.response)
	if !a.count(outcome{answered: a}) {
		a.body.discard(a.failed)
		return nil, errTooLate
	}
	if !a.failed {
		return a.response, nil
	}
	return a.response, &StatusError{Response: a.response, retryAfter: asked, asks: known, attempt: a}
}

func (a *attempt) endWithError(err error) error {
	defer closeResponse(a.response)
	a.awaitCancel()
	a.life.end()
	a.count(outcome{err: err})
	if x := a.exchange; !x.repeatable || x.Err() != nil || permanent(err) {
		return &finalError{err}
	}
	return err
}

// awaitCancel returns when the context of an exchange has ended whose Cancel channel is closed. The base may have seen
// that first, and its error does not say that the request was cancelled: strategies go by the context.
func (a *attempt) awaitCancel() {
	select {
	case <-a.request.Cancel: //nolint:staticcheck // deprecated, and http.Client sets it
		<-a.exchange.Done()
	default:
	}
}

// abort ends an attempt that does not return. Everything is closed, also if closing
// one thing panics.
func (a *attempt) abort() {
	if a.body.base == nil {
		defer closeResponse(a.response)
	} else {
		defer a.body.discard(false)
	}
	if !a.returned { // the base may have left it open
		defer closeRequestBody(&a.request)
	}
	a.life.end()
	a.count(outcome{err: errPanicked})
}

// count takes note of how the attempt ended. It returns false if the caller has its
// answer already.
func (a *attempt) count(o outcome) bool {
	x := a.exchange
	x.mu.Lock()
	defer x.mu.Unlock()
	if !a.counted {
		a.counted = true
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

// close lets no other attempt begin, and waits for calls of the request's GetBody: when
// it has returned, the exchange does not read the caller's request any more.
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

// settle returns what the caller gets, and closes everything else.
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
			a.giveBackRequest(resp)
			continue
		}
		defer a.body.discard(a.failed) // deferred: also if closing another one panics
	}
	return resp, err
}

// answer is the answer to the caller where the pipeline returned an error.
func (x *exchange) answer(err error, last outcome) (*http.Response, error) {
	if refused(err) && last != (outcome{}) {
		// Whatever a strategy tried then: what came before is how it ended.
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
	if final, ok := err.(*finalError); ok { //nolint:errorlint // only where it is the outermost: it says nothing to a caller
		err = final.error
	}
	return nil, err
}

// abandon closes everything: there is no answer to the caller.
func (x *exchange) abandon() {
	sent, _, responses := x.close()
	for _, a := range responses {
		defer a.body.discard(false)
	}
	if sent == 0 {
		closeRequestBody(x.request)
	}
}

// deliver returns the response as the caller is to see it.
func (a *attempt) deliver() *http.Response {
	a.giveBackRequest(a.response)
	return a.response
}

// giveBackRequest makes the caller's request that of the response. Until the caller has
// it, the response shows the attempt's copy: what looks at it may be late.
func (a *attempt) giveBackRequest(resp *http.Response) {
	if resp.Request == &a.request {
		resp.Request = a.exchange.request
	}
}

// isBehind reports whether resp is the attempt's response, or one of a strategy with
// its body: the strategy has changed something else about it.
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
