package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
)

// An exchange is one request with all attempts at it. It is also the context that
// the pipeline runs with, so that strategies find it.
type exchange struct {
	context.Context // the caller's

	transport  *RoundTripper
	request    *http.Request
	key        string // of [TransportOptions.Key]
	repeatable bool   // the request may be sent more than once

	mu        sync.Mutex
	sent      int      // attempts that were made
	running   int      // of them, those that have not ended
	settled   bool     // the caller has its answer
	responses []*reply // those that have to be closed
	array     [1]*reply
	last      outcome
	first     reply // most requests have no other
}

// A reply is what an attempt got, before anybody has decided what becomes of it.
type reply struct {
	response *http.Response
	failed   bool
	body     body
}

// An outcome is how an attempt ended.
type outcome struct {
	reply *reply // nil: err
	err   error
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

// attempt is the callback of the pipeline. Strategies may run it many times, also at
// the same time, and after the caller has its answer.
func (x *exchange) attempt(ctx context.Context) (*http.Response, error) {
	number, err := x.begin()
	if err != nil {
		return nil, err
	}
	life, own := newLifetime(ctx, x)
	var resp *http.Response
	taken := false
	defer func() {
		if !taken { // a panic
			closeResponse(resp)
			life.end()
			x.ended(outcome{err: errPanicked})
		}
	}()
	r, err := x.requestFor(own, number)
	if err == nil {
		resp, err = x.transport.options.Base.RoundTrip(r)
	}
	if resp != nil && resp.Request == r {
		resp.Request = x.request // as the caller knows it
	}
	failed := err == nil && resp != nil && x.transport.options.Failed(resp)
	taken = true
	return x.take(life, outcome{reply: x.newReply(number, resp, failed), err: err})
}

// begin decides whether there may be another attempt, and makes room for it.
func (x *exchange) begin() (number int, err error) {
	x.mu.Lock()
	if err := x.refusalLocked(); err != nil {
		x.mu.Unlock()
		return 0, err
	}
	number = x.sent
	x.sent++
	x.running++
	stale := x.takeStaleLocked()
	x.mu.Unlock()
	// Another attempt follows: what there is will most likely be thrown away, and the
	// connection is better used by this one.
	for _, s := range stale {
		s.body.condense()
	}
	return number, nil
}

// takeStaleLocked returns the failures that will hardly be anybody's answer. One that
// is no failure may be on its way to the caller in this very moment: a hedge may
// start an attempt that it has no use for any more.
func (x *exchange) takeStaleLocked() (stale []*reply) {
	if x.running > 1 || len(x.responses) == 0 {
		return nil
	}
	x.responses = slices.DeleteFunc(x.responses, func(r *reply) bool {
		if r.failed {
			stale = append(stale, r)
		}
		return r.failed
	})
	return stale
}

func (x *exchange) refusalLocked() error {
	switch {
	case x.settled:
		return errTooLate
	case x.sent == 0:
		return nil
	case x.running > 0 && !isSafe(x.request.Method):
		return errAtTheSameTime
	case !x.repeatable:
		return errSentBefore
	default:
		return nil
	}
}

// newReply returns nil for no response.
func (x *exchange) newReply(number int, resp *http.Response, failed bool) *reply {
	if resp == nil {
		return nil
	}
	r := &x.first
	if number > 0 {
		r = new(reply)
	}
	r.response, r.failed = resp, failed
	return r
}

// take makes of what the base returned what the strategies see.
func (x *exchange) take(life *lifetime, o outcome) (*http.Response, error) {
	if o.err == nil && o.reply == nil {
		o.err = errBaseNothing
	}
	if o.err == nil {
		o.err = life.detach() // it may have ended at the last moment
	}
	if o.err != nil {
		return nil, x.takeError(life, o)
	}
	resp := o.reply.response
	o.reply.body.wrap(resp, life)
	asked, known := x.noteRetryAfter(resp)
	if !x.ended(o) {
		o.reply.body.discard(o.reply.failed)
		return nil, errTooLate
	}
	if !o.reply.failed {
		return resp, nil
	}
	return resp, &StatusError{
		Response: resp, retryAfter: asked, asks: known,
		repeatable: x.repeatable, exchange: x,
	}
}

func (x *exchange) takeError(life *lifetime, o outcome) error {
	if o.reply != nil {
		closeResponse(o.reply.response)
	}
	life.end()
	x.ended(outcome{err: o.err})
	if x.repeatable {
		return o.err
	}
	return &finalError{o.err}
}

// ended takes note of how an attempt ended. It returns false if nobody wants to know
// any more.
func (x *exchange) ended(o outcome) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running--
	if x.settled {
		return false
	}
	x.last = o
	if o.reply != nil {
		x.responses = append(x.responses, o.reply)
	}
	return true
}

// settle returns what the caller gets, and closes everything else.
func (x *exchange) settle(resp *http.Response, err error) (*http.Response, error) {
	x.mu.Lock()
	x.settled = true
	sent, last, responses := x.sent, x.last, x.responses
	x.mu.Unlock()

	if sent == 0 {
		closeRequestBody(x.request)
	}
	if err != nil {
		resp, err = x.answer(err, last)
	}
	if resp == nil && err == nil {
		err = errNoResponse
	}
	for _, other := range responses {
		if other.response != resp && !sharesBody(resp, other) {
			other.body.discard(other.failed)
		}
	}
	return resp, err
}

// answer is the answer to the caller where the pipeline returned an error.
func (x *exchange) answer(err error, last outcome) (*http.Response, error) {
	if refused(err) && last != (outcome{}) {
		// Whatever a strategy tried then: what came before is how it ended.
		if last.reply != nil && x.Err() == nil {
			return last.reply.response, nil
		}
		if last.err != nil {
			return nil, last.err
		}
	}
	if status, ok := errors.AsType[*StatusError](err); ok && status.exchange == x && x.Err() == nil {
		return status.Response, nil
	}
	if final, ok := err.(*finalError); ok { //nolint:errorlint // only where it is the outermost: it says nothing to a caller
		err = final.error
	}
	return nil, err
}

// abandon closes everything: nobody gets an answer.
func (x *exchange) abandon() {
	x.mu.Lock()
	x.settled = true
	sent, responses := x.sent, x.responses
	x.mu.Unlock()
	if sent == 0 {
		closeRequestBody(x.request)
	}
	for _, r := range responses {
		r.body.discard(false)
	}
}

// sharesBody tells whether resp, which is not ours, has the body of one of ours: a
// strategy has changed something else about it.
func sharesBody(resp *http.Response, ours *reply) bool {
	if resp == nil || resp.Body == nil {
		return false
	}
	switch b := resp.Body.(type) {
	case *body:
		return b == &ours.body
	case *duplexBody:
		return b.body == &ours.body
	default:
		return false
	}
}
