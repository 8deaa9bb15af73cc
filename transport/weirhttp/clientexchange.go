package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/transport/internal/unsent"
)

// An exchange is one request with all attempts at it. It is also the context that the pipeline runs with, so that
// strategies find it.
//
// The caller can reuse the request when RoundTrip has returned and the body of the response is closed, but an attempt
// of a hedge can run for longer. So request is read only under mu while settled is false, and attempts work on their
// own copies. [Transport.RoundTrip] runs an exchange like this:
//
//	send      makes one attempt; the pipeline calls it, also many times and at the same time
//	 begin    makes the attempt's copy of the request, or refuses the attempt
//	 end      returns what the strategies see of the response or the error
//	 abort    is end for a base that panics
//	settle    returns what the caller gets, and closes all other responses
//	abandon   is settle for a pipeline that panics
type exchange struct {
	context.Context // the caller's; it also ends with the request's Cancel channel

	transport   *Transport
	caller      context.Context // the context of the request
	request     *http.Request   // the caller's
	host        string          // see [HostFrom]
	key         string          // what [TransportOptions.Key] returned
	repeatable  bool            // the request may be sent more than once
	cancellable bool            // the request has a Cancel channel

	mu             sync.Mutex
	sent           int           // attempts that were made
	running        int           // attempts that have not ended
	settled        bool          // the caller has its answer
	getBodyCalls   int           // calls of the request's GetBody under way
	getBodyDone    chan struct{} // closed when getBodyCalls is 0; nil if close does not wait for that
	responses      []*attempt    // attempts whose responses must be closed
	responsesArray [1]*attempt   // the first array of responses, which saves an allocation
	copied         *http.Request // for [RequestFrom]; nil until its first call
	lastOutcome    outcome       // of the attempt that ended last
	firstAttempt   attempt       // most requests have only one
}

// exchangeKey asks a context for the nearest exchange.
type exchangeKey struct{}

// Value returns the exchange itself for exchangeKey and as the [holding.Holder], and a copy of its request for requestKey.
func (x *exchange) Value(key any) any {
	switch key.(type) {
	case exchangeKey:
		return x
	case requestKey:
		return x.requestCopy()
	case holding.Key:
		if x.transport.options.ReleaseAtHeader {
			return nil
		}
		return x
	default:
		return x.Context.Value(key)
	}
}

// Hold holds the permits of a strategy until the body of the response is read or closed. It implements [holding.Holder].
func (x *exchange) Hold(result any, release func()) bool {
	x.mu.Lock()
	a := x.behindLocked(result)
	x.mu.Unlock()
	return a != nil && a.body.hold(x.caller, release)
}

// Release gives back the permits that strategies hold for the response. It implements [holding.Holder].
func (x *exchange) Release(result any) {
	x.mu.Lock()
	a := x.behindLocked(result)
	x.mu.Unlock()
	if a != nil {
		a.body.giveBack(false)
	}
}

// Drop is Release for a response that the caller will most likely not get: from now on it counts as a failure, so that the
// next attempt can use its connection. It implements [holding.Holder].
func (x *exchange) Drop(result any) {
	x.mu.Lock()
	a := x.behindLocked(result)
	if a != nil && !x.settled {
		a.failed = true
	}
	x.mu.Unlock()
	if a != nil {
		a.body.giveBack(false)
	}
}

// behindLocked returns the attempt whose response a strategy returns, or nil.
func (x *exchange) behindLocked(result any) *attempt {
	resp, _ := result.(*http.Response)
	if i := slices.IndexFunc(x.responses, func(a *attempt) bool { return a.isBehind(resp) }); i >= 0 {
		return x.responses[i]
	}
	return nil
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

// begin returns a new attempt with its copy of the caller's request, or an error if no attempt may begin. stale are the
// earlier attempts whose responses can be closed, so that the new attempt can use their connections.
func (x *exchange) begin(ctx context.Context) (a *attempt, stale []*attempt, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.refusalLocked(); err != nil {
		return nil, nil, err
	}
	if a = &x.firstAttempt; x.sent > 0 {
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

// buffer frees the connections of the stale attempts, so that the next attempt can use one. It then removes the freed
// attempts from responses. If a body panics, or a strategy still reads it, its attempt stays in responses, and settle
// or abandon closes the body.
func (x *exchange) buffer(stale []*attempt) {
	if len(stale) == 0 {
		return
	}
	buffered := slices.DeleteFunc(stale, func(a *attempt) bool { return !a.body.buffer() })
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.settled { // settle reads responses without mu, after it has set settled
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

// close lets no other attempt begin, and waits for calls of the request's GetBody. After close has returned, the
// exchange does not read the caller's request.
func (x *exchange) close() (sent int, last outcome, responses []*attempt) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settled = true
	if x.sent == 0 {
		x.firstAttempt.copyTarget(x.request)
	}
	if x.getBodyCalls > 0 {
		x.getBodyDone = make(chan struct{})
		x.mu.Unlock()
		<-x.getBodyDone
		x.mu.Lock()
	}
	return x.sent, x.lastOutcome, x.responses
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
	if unsent.Is(err) && last != (outcome{}) {
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
	if final, ok := err.(*finalError); ok { //nolint:errorlint // only the outermost error: a finalError means nothing to the caller
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

// getBody is the GetBody of an attempt's request, which the base can also call. The caller can reuse what its GetBody
// reads as soon as RoundTrip has returned: so getBody fails after that, and RoundTrip waits for calls under way.
func (x *exchange) getBody() (io.ReadCloser, error) {
	x.mu.Lock()
	if x.settled {
		x.mu.Unlock()
		return nil, errTooLate
	}
	x.getBodyCalls++
	get := x.request.GetBody
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.getBodyCalls--; x.getBodyCalls == 0 && x.getBodyDone != nil {
			close(x.getBodyDone)
		}
	}()
	return get()
}

// requestCopy returns the copy of the request for [RequestFrom]. Strategies can use it while the caller reuses the
// request, so it shares nothing with it that changes: the caller fills in the trailer while the body is read.
func (x *exchange) requestCopy() *http.Request {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.copied == nil {
		from := x.request
		if x.settled {
			from = &x.firstAttempt.request
		}
		plain := *from
		plain.Body, plain.GetBody, plain.Trailer = nil, nil, nil
		x.copied = plain.Clone(x)
	}
	return x.copied
}
