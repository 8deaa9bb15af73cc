package weirhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/holding"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/exchange"
	"github.com/weir-go/weir/transport/weirhttp/internal/handlerio"
)

// A roundTrip is one request with all attempts at it.
//
// The caller can reuse the request when RoundTrip has returned and the body of the response is closed, but an attempt of a
// hedge can run for longer. So strategies and attempts get copies, which share with the caller's request only its body and its
// trailer, which the caller fills in while the body is read.
type roundTrip struct {
	exchange.Exchange[*attempt]

	transport *Transport
	original  *http.Request // the caller's
	request   *http.Request // a copy without body and trailer, for strategies
	host      string        // see [HostFrom]

	// Of the caller's request:
	body    io.ReadCloser
	getBody func() (io.ReadCloser, error)
	trailer http.Header
}

// RoundTrip sends r through the pipeline. It implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := &roundTrip{transport: t, original: r, body: r.Body, getBody: r.GetBody, trailer: r.Trailer}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_, _ = x.settle(nil, nil)
		}
	}()
	x.request = r.Clone(r.Context())
	x.request.Body, x.request.GetBody, x.request.Trailer = nil, nil, nil
	x.host = hostOf(r)
	repeatable := (!handlerio.HasBody(r) || r.GetBody != nil) && t.options.Idempotent(r)
	x.Name, x.Repeat = "weirhttp: the request", func() bool { return repeatable }
	x.Overlap = isSafe(r.Method) && (len(r.Trailer) == 0 || !handlerio.HasBody(r)) // two bodies would fill the same trailer
	ctx := context.WithValue(context.WithValue(r.Context(), holding.Key{}, x), requestKey{}, x.request)
	resp, err := pipeline.ExecuteValue(ctx, t.pipeline, x.send)
	returned = true
	return x.settle(resp, err)
}

// roundTripOf returns the roundTrip that the context belongs to, or nil.
func roundTripOf(ctx context.Context) *roundTrip {
	x, _ := ctx.Value(holding.Key{}).(*roundTrip)
	return x
}

// HostFrom returns the host that the request of this execution goes to, in lower case, with its port unless that is the
// default of the scheme. A limiter for each host is partitioned by it:
//
//	ratelimit.NewPartitioned(perHost, weirhttp.HostFrom, nil)
//
// It is "" in a context that does not come from a [Transport].
func HostFrom(ctx context.Context) string {
	if x := roundTripOf(ctx); x != nil {
		return x.host
	}
	return ""
}

func hostOf(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	host := strings.ToLower(r.URL.Host)
	switch r.URL.Scheme {
	case "http":
		host = strings.TrimSuffix(host, ":80")
	case "https":
		host = strings.TrimSuffix(host, ":443")
	}
	return admission.BoundedKey(host)
}

// send is the callback of the pipeline: it makes one attempt. Strategies can run it many times, at the same time, and
// after the caller has its answer.
func (x *roundTrip) send(ctx context.Context) (*http.Response, error) {
	number, err := x.Begin()
	if err != nil {
		return nil, err
	}
	a := &attempt{of: x}
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			a.abort()
		}
	}()
	for _, earlier := range x.Ended() {
		if earlier.failed.Load() { // the caller will most likely not get it
			earlier.body.buffer()
		}
	}
	err = a.send(ctx, number)
	returned = true
	if err != nil {
		return nil, a.endWithError(err)
	}
	if err := x.End(a, true); err != nil {
		a.body.discard(a.failed.Load())
		return nil, err
	}
	if !a.failed.Load() {
		return a.response, nil
	}
	wait, asked := retryAfterOf(a.response)
	return a.response, &StatusError{Response: a.response, wait: wait, asked: asked, attempt: a}
}

// open calls the caller's GetBody for another attempt. The caller can reuse what GetBody reads when RoundTrip has returned, so
// RoundTrip waits for open, which fails afterwards.
func (x *roundTrip) open() (io.ReadCloser, error) {
	if !x.Borrow() {
		return nil, errAnswered
	}
	defer x.Return()
	return x.getBody()
}

// settle returns the response or the error for the caller, and closes all other responses. resp and err are those of the pipeline.
func (x *roundTrip) settle(resp *http.Response, err error) (*http.Response, error) {
	x.Settle()
	if x.Begun() == 0 && x.body != nil { // as every RoundTripper must
		defer x.body.Close()
	}
	ended := x.Ended()
	if err != nil {
		resp, err = x.answer(err, ended)
	}
	if resp == nil && err == nil {
		err = errNoResponse
	}
	for _, a := range ended {
		switch {
		case !a.owns(resp):
			defer a.body.discard(a.failed.Load()) // deferred in case closing another one panics
		case resp.Request == a.request:
			resp.Request = x.original
		}
	}
	return resp, err
}

// answer returns the response or the error for the caller if the pipeline has returned err.
func (x *roundTrip) answer(err error, ended []*attempt) (*http.Response, error) {
	var decided *attempt
	if exchange.IsRefusal(err) && len(ended) > 0 { // an attempt that was not made does not count: the one before does
		if decided = ended[len(ended)-1]; decided.err != nil {
			return nil, decided.err
		}
	} else if status, ok := errors.AsType[*StatusError](err); ok && status.attempt != nil && status.attempt.of == x {
		decided = status.attempt
	}
	if decided != nil && x.request.Context().Err() == nil {
		return decided.response, nil
	}
	if final, ok := err.(*exchange.FinalError); ok { //nolint:errorlint // only the outermost error: a FinalError means nothing to the caller
		err = final.Unwrap()
	}
	return nil, err
}

// Hold holds the permits of a strategy until the body of the response is read or closed. It implements [holding.Holder].
func (x *roundTrip) Hold(result any, release func()) bool {
	a := x.attemptOf(result)
	return a != nil && a.body.hold(x.request.Context(), release)
}

// Release gives back the permits that strategies hold for the response. It implements [holding.Holder].
func (x *roundTrip) Release(result any) {
	if a := x.attemptOf(result); a != nil {
		a.body.release()
	}
}

// Drop is Release for a response that the caller will most likely not get. From now on it counts as a failure, so that the
// next attempt can use its connection. It implements [holding.Holder].
func (x *roundTrip) Drop(result any) {
	if a := x.attemptOf(result); a != nil {
		a.failed.Store(true)
		a.body.release()
	}
}

// attemptOf returns the attempt whose response a strategy returns, or nil.
func (x *roundTrip) attemptOf(result any) *attempt {
	resp, _ := result.(*http.Response)
	for _, a := range x.Ended() {
		if a.owns(resp) {
			return a
		}
	}
	return nil
}

// An attempt is one try of a roundTrip.
type attempt struct {
	of       *roundTrip
	request  *http.Request  // what the base gets
	response *http.Response // nil: it failed with err
	err      error
	failed   atomic.Bool // the response counts as a failure
	body     body
}

// send sends the request. The error is nil if there is a response that is delivered.
func (a *attempt) send(ctx context.Context, number int) error {
	own, detach := a.newContext(ctx)
	if err := a.copyRequest(own, number); err != nil {
		return err
	}
	var err error
	a.response, err = a.of.transport.options.Base.RoundTrip(a.request)
	if err == nil && a.response == nil {
		err = errBaseNothing
	}
	if err == nil {
		a.failed.Store(a.of.transport.options.Failed(a.response))
	}
	if !detach() && (err == nil || errors.Is(err, context.Canceled)) {
		err = pipeline.ContextError(ctx)
	}
	if err == nil {
		a.body.wrap(a.response)
	}
	return err
}

// copyRequest makes the attempt's own copy of the request, because the base can change it.
func (a *attempt) copyRequest(ctx context.Context, number int) (err error) {
	x := a.of
	r := x.request.Clone(ctx)
	r.Body, r.Trailer = x.body, x.trailer
	if _, ok := ctx.Deadline(); ok {
		r.Cancel = nil //nolint:staticcheck // an http.Client with a Timeout sets both, and the error must not depend on which ends first
	}
	if handlerio.HasBody(r) {
		if x.getBody != nil {
			r.GetBody = x.open
		}
		if number > 0 {
			if r.Body, err = x.open(); err != nil {
				return exchange.Final(fmt.Errorf("weirhttp: the body for attempt %d: %w", number+1, err))
			}
		}
	}
	a.request = r
	return nil
}

// endWithError returns the error that the strategies see of an attempt that ended with err.
func (a *attempt) endWithError(err error) error {
	if a.response != nil && a.response.Body != nil {
		defer a.response.Body.Close()
	}
	a.body.end()
	a.response, a.err = nil, err
	_ = a.of.End(a, true)
	if !a.of.Repeat() || permanent(err) {
		return exchange.Final(err)
	}
	return err
}

// abort ends an attempt that panics. It closes everything, even if closing one thing panics.
func (a *attempt) abort() {
	defer a.of.Abort()
	switch {
	case a.response != nil && a.response.Body != nil:
		defer a.response.Body.Close()
	case a.request != nil && a.request.Body != nil: // the base may not have closed it
		defer a.request.Body.Close()
	}
	a.body.end()
}

// owns reports whether resp is the attempt's response, or a strategy's own response with the body of that response.
func (a *attempt) owns(resp *http.Response) bool {
	if resp == nil || resp == a.response {
		return resp != nil
	}
	own, ok := resp.Body.(interface{ original() *body })
	return ok && own.original() == &a.body
}

// An attemptContext is the context that the base gets for an attempt if strategies such as a timeout or a hedge run it with
// a context that ends when the strategies are done: with that context the base would stop delivering the body that the caller
// is about to read. An attemptContext ends with the caller's context, or when the body has been read or closed, and with the
// strategies' context, whose cause is its own, until the response is there. The deadline is the caller's.
type attemptContext struct {
	context.Context
	values context.Context // of the strategies, without its end
}

// Value returns the value of the strategies' context. Package context finds the cause of the end in the Context.
func (c attemptContext) Value(key any) any {
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}

// newContext returns the context that the base gets. ctx is the context with which the strategies run the attempt. detach makes
// the new one independent of ctx, and returns false if ctx has ended before.
func (a *attempt) newContext(ctx context.Context) (own context.Context, detach func() bool) {
	caller := a.of.request.Context()
	if ctx.Done() == caller.Done() { // they end at the same time
		return ctx, func() bool { return true }
	}
	lifetime, cancel := context.WithCancelCause(caller)
	a.body.cancel = cancel
	return attemptContext{lifetime, context.WithoutCancel(ctx)}, context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
}

// A StatusError tells the strategies of a [Transport] that a response counts as a failure. The caller of the Transport
// gets the response instead. There is one exception: if the caller's own context has ended, the caller can get an error
// that is or wraps a StatusError, whose response is closed.
type StatusError struct {
	// Response is the response. A strategy can look at it, and must not close it.
	Response *http.Response

	wait    time.Duration
	asked   bool     // the response asks for the wait
	attempt *attempt // nil: the program made the error
}

// Error returns the method, the host, the status and Retry-After. It leaves out the path, which can have secrets in it.
func (e *StatusError) Error() string {
	request := "a request"
	if e.attempt != nil {
		if r := e.attempt.of.request; r.URL != nil {
			request = r.Method + " " + r.URL.Host
		}
	}
	text := fmt.Sprintf("weirhttp: %s: %d %s", request, e.Response.StatusCode, http.StatusText(e.Response.StatusCode))
	if e.asked {
		text += fmt.Sprintf(", retry after %v", e.wait)
	}
	return text
}

// RetryAfter returns the wait that the response asks for; ok is false if it asks for none. See [pipeline.RetryAfter].
func (e *StatusError) RetryAfter() (d time.Duration, ok bool) { return e.wait, e.asked }

// ErrorType returns the status, which telemetry reports as error.type; see [RequestRecorder] for statuses that are not
// registered.
func (e *StatusError) ErrorType() string { return strconv.Itoa(knownStatus(e.Response.StatusCode)) }

// Retryable reports whether the request may be sent again.
func (e *StatusError) Retryable() bool { return e.attempt != nil && e.attempt.of.Repeat() }

// permanent reports whether another attempt would fail in the same way: the server cannot be trusted, or does not speak TLS.
func permanent(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	return untrusted || noTLS || errors.Is(err, http.ErrSchemeMismatch)
}

var (
	errNoResponse  = errors.New("weirhttp: the pipeline returned neither a response nor an error")
	errBaseNothing = errors.New("weirhttp: the base transport returned neither a response nor an error")
	errAnswered    = errors.New("weirhttp: the request has been answered")
)

// retryAfterOf returns the wait that a response asks for, in seconds or until a date. A date counts from the Date of the
// response, so that the server's clock is compared with itself, or from the local clock if there is no valid Date. A date in
// the past is 0.
func retryAfterOf(resp *http.Response) (d time.Duration, ok bool) {
	text := strings.TrimSpace(resp.Header.Get(retryAfterField))
	switch seconds, err := strconv.ParseUint(text, 10, 64); {
	case errors.Is(err, strconv.ErrRange), err == nil && seconds > uint64(math.MaxInt64/time.Second):
		return math.MaxInt64, true
	case err == nil:
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0), true
}
