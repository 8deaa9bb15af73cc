package weirhttp

import (
	"cmp"
	"net/http"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// TransportOptions are the options of [NewTransport]. The zero value has the defaults.
type TransportOptions struct {
	// Base sends the requests. The default is [http.DefaultTransport].
	Base http.RoundTripper `json:"-" yaml:"-"`
	// Failed reports whether strategies see a response as a failure. If nil, they see
	// those with status 429, 502, 503 and 504 as failures. It must not read the body.
	Failed func(resp *http.Response) bool `json:"-" yaml:"-"`
	// Idempotent reports whether a request can be sent again although the server may
	// have processed it. If nil, requests are idempotent if their method is GET, HEAD,
	// OPTIONS, TRACE, PUT or DELETE, or if they have an Idempotency-Key. A request
	// with a body but without GetBody is never sent again.
	Idempotent func(r *http.Request) bool `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *TransportOptions) Validate() error {
	var problems validate.Problems
	if o != nil {
		problems.IsSet("Base", o.Base)
	}
	return problems.Err("weirhttp")
}

// withDefaults returns a copy of o in which every option is set.
func (o *TransportOptions) withDefaults() TransportOptions {
	full := *cmp.Or(o, new(TransportOptions))
	if full.Base == nil {
		full.Base = http.DefaultTransport
	}
	if full.Failed == nil {
		full.Failed = failedByDefault
	}
	if full.Idempotent == nil {
		full.Idempotent = idempotentByDefault
	}
	return full
}

func failedByDefault(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

func idempotentByDefault(r *http.Request) bool {
	switch r.Method {
	case http.MethodPut, http.MethodDelete:
		return true
	}
	// As in net/http, the key can be present without a value, which is not sent.
	_, key := r.Header["Idempotency-Key"]
	_, other := r.Header["X-Idempotency-Key"]
	return key || other || isSafe(r.Method)
}

// isSafe reports whether the method is safe, as RFC 9110 defines it.
func isSafe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	default:
		return false
	}
}

// A Transport is an [http.RoundTripper] for [http.Client] that sends requests through a pipeline. Make one with
// [NewTransport]. It is safe for concurrent use if its Base is.
//
// # What the strategies see
//
// Strategies see a response that counts as a failure together with a [*StatusError], so that a retry tries again and a
// circuit breaker counts it. The caller does not see that error: if the last response is a failure, the caller gets the
// response, as from any other transport. An error of a strategy, such as a limiter's rejection, reaches the caller.
//
// [RequestFrom] finds the request, [HostFrom] its host.
//
// A retry waits at least as long as Retry-After asks for, in seconds or as a date. If that is more than
// retry.Options.MaxRetryAfter, the caller gets the response at once.
//
// Whatever a strategy does, a request is sent a second time only if it is idempotent and has no body or a GetBody.
// While the first attempt is still running, its method must also be safe. So a hedge hedges a GET, but not a PUT. The
// errors of a request that is not sent again say so: a retry without a Handle does not wait for it.
//
// # Bodies
//
// The caller can read the body of its response after the strategies are done: the end of a timeout or of a hedge does
// not end the body, only the caller's own context does. As always, the caller must read the body to its end or close
// it.
//
// The permits of a concurrency limiter, and of any other that lends them, are held until the body has been read to its
// end or closed, reading it fails, or the caller's context ends. A caller that does none of that keeps the permit, as it
// keeps the connection. The connection of an upgrade, such as a WebSocket, outlives the caller's context, and keeps its
// permit until it is closed. The permits of an attempt that fails are released at once, also if the caller gets its response,
// and so are those of a response that a retry, a hedge, a fallback or a policy of failsafe-go handles as a failure.
// The limiters of package adaptive learn from the time until the header, in a strategy of package ratelimit, too, and
// circuit breakers count the outcome then. A strategy of the program, and a policy of failsafe-go, ends when the header is
// there.
//
// The Transport closes all other responses. Before another attempt it reads up to 4 KiB of the body of a failure, or of a response
// that a retry drops, so that the connection can be used again; after that the strategies cannot read more of the body. A strategy of the
// program that makes another attempt closes the body of the last response first. A strategy that returns a response of its
// own must not give it a body that wraps the body of another response.
//
// # Limits
//
// Strategies do not see [http.Request.Cancel], which is deprecated: the Base gets it, unless the context of the request
// has a deadline, which then decides alone, as with [http.Client.Timeout].
type Transport struct {
	pipeline *pipeline.Pipeline
	options  TransportOptions
}

// NewTransport returns a Transport that sends requests through p. If p is nil, the requests go to the base directly. If
// o is nil, the defaults apply. The error is a [weir.OptionsError].
func NewTransport(p *pipeline.Pipeline, o *TransportOptions) (*Transport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Transport{pipeline: p, options: o.withDefaults()}, nil
}

// CloseIdleConnections closes the idle connections of the base; see [http.Client.CloseIdleConnections].
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}
