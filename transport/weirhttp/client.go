package weirhttp

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/admission"
)

// DefaultMaxRetryAfter is the default of [TransportOptions.MaxRetryAfter].
const DefaultMaxRetryAfter = time.Minute

// TransportOptions are the options of [NewTransport]. The zero value has the defaults.
type TransportOptions struct {
	// Base sends the requests. The default is [http.DefaultTransport].
	Base http.RoundTripper `json:"-" yaml:"-"`
	// Key returns the key of a request for [KeyFrom]. If nil, the key is the host.
	Key Key `json:"-" yaml:"-"`
	// Failed reports whether strategies see a response as a failure. If nil, they see
	// those with status 429, 502, 503 and 504 as failures. It must not read the body.
	Failed func(resp *http.Response) bool `json:"-" yaml:"-"`
	// Idempotent reports whether a request can be sent again although the server may
	// have processed it. If nil, requests are idempotent if their method is GET, HEAD,
	// OPTIONS, TRACE, PUT or DELETE, or if they have an Idempotency-Key. A request
	// with a body but without GetBody is never sent again.
	Idempotent func(r *http.Request) bool `json:"-" yaml:"-"`
	// MaxRetryAfter bounds the wait that a server can ask for with Retry-After. Longer
	// waits are cut to it, so a retry can come before the server asked for it. With 0,
	// it is [DefaultMaxRetryAfter]. With -1 no wait is cut: if a response asks for
	// more than retry.Options.MaxRetryAfter, the retry does not wait, and the caller
	// gets that response.
	MaxRetryAfter time.Duration `json:"max_retry_after,omitempty" yaml:"max_retry_after,omitempty"`
	// PauseOnRetryAfter is the gate that holds back all requests to a host after a
	// response with 429 or 503 and Retry-After. The same gate must be in the pipeline;
	// see [Gate]. If nil, only the retry of that one request waits.
	PauseOnRetryAfter *Gate `json:"-" yaml:"-"`
	// ReleaseAtHeader releases permits as soon as the header of a response is there.
	// By default a permit that is lent, as by a concurrency limiter, is held until the
	// body of the response has been read to its end or closed.
	ReleaseAtHeader bool `json:"release_at_header,omitempty" yaml:"release_at_header,omitempty"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *TransportOptions) Validate() error {
	if o == nil {
		return nil
	}
	var problems validate.Problems
	admission.IsSet(&problems, "Base", o.Base)
	if o.Key.isInvalid() {
		problems.Add("Key", nil, invalidKeyProblem)
	}
	if o.MaxRetryAfter < -1 {
		problems.Add("MaxRetryAfter", o.MaxRetryAfter, "must be at least 0, or -1 for no limit")
	}
	return problems.Err("weirhttp")
}

// withDefaults returns a copy of o in which every option is set.
func (o *TransportOptions) withDefaults() TransportOptions {
	var full TransportOptions
	if o != nil {
		full = *o
	}
	if full.Base == nil {
		full.Base = http.DefaultTransport
	}
	if full.Failed == nil {
		full.Failed = failedByDefault
	}
	if full.Idempotent == nil {
		full.Idempotent = idempotentByDefault
	}
	switch full.MaxRetryAfter {
	case 0:
		full.MaxRetryAfter = DefaultMaxRetryAfter
	case -1:
		full.MaxRetryAfter = forever
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

// A Transport is an [http.RoundTripper] for [http.Client] that sends requests through a pipeline. Make one with
// [NewTransport]. It is safe for concurrent use if its Base is.
//
// # What the strategies see
//
// Strategies see a response that counts as a failure together with a [*StatusError], so that a retry tries again and a
// circuit breaker counts it. The caller does not see that error: if the last response is a failure, the caller gets the
// response, as from any other transport. An error of a strategy, such as a limiter's rejection, reaches the caller.
//
// [RequestFrom] finds the request, [HostFrom] its host, [KeyFrom] its key.
//
// A retry waits at least as long as Retry-After asks for, in seconds or as a date, up to
// [TransportOptions.MaxRetryAfter]. Give it [Retryable], so that it does not wait for requests that are not sent again:
//
//	retry.New(&retry.Options{Handle: weirhttp.Retryable})
//
// Whatever a strategy does, a request is sent a second time only if it is idempotent and has no body or a GetBody.
// While the first attempt is still running, its method must also be safe. So a hedge hedges a GET, but not a PUT.
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
// there. [TransportOptions.ReleaseAtHeader] releases all permits then.
//
// All other responses are closed. Before another attempt, up to 4 KiB of the body of a failure, and of a response that a
// retry drops, are read, so that its connection can be used again. A strategy of the program that makes another attempt
// closes the body of the last response first. A strategy that returns a response of its own must not give it a body that
// wraps the body of another response.
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

// RoundTrip sends r through the pipeline. It implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := &exchange{Context: r.Context(), transport: t, request: r}
	settled := false
	defer func() {
		if !settled { // a panic, or runtime.Goexit
			x.abandon()
		}
	}()
	x.responses, x.caller = x.responsesArray[:0], x.Context
	if r.Cancel != nil { //nolint:staticcheck // deprecated, but http.Client sets it
		var stop context.CancelCauseFunc
		x.Context, stop = withCancelChannel(x.Context, r.Cancel) //nolint:staticcheck // see above
		x.cancellable = true
		defer stop(nil)
	}
	x.host = hostOf(r)
	x.repeatable = t.options.repeatable(r)
	if t.options.Key != nil {
		x.key = t.options.Key(r)
	}
	resp, err := pipeline.ExecuteValue(x, t.pipeline, x.send)
	resp, err = x.settle(resp, err)
	settled = true
	return resp, err
}

// HostFrom returns the host that the request of this execution goes to, in lower case, with its port unless that is the
// default of the scheme. A limiter for each host is partitioned by it:
//
//	ratelimit.NewPartitioned(perHost, weirhttp.HostFrom, nil)
//
// It is "" in a context that does not come from a [Transport].
func HostFrom(ctx context.Context) string {
	if x := exchangeFrom(ctx); x != nil {
		return x.host
	}
	return ""
}

// KeyFrom returns what [TransportOptions.Key] returned for the request of this execution. If that option is nil,
// KeyFrom returns the same as [HostFrom]. It is "" in a context that does not come from a [Transport].
func KeyFrom(ctx context.Context) string {
	x := exchangeFrom(ctx)
	switch {
	case x == nil:
		return ""
	case x.transport.options.Key == nil:
		return x.host
	default:
		return x.key
	}
}
