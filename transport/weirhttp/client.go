package weirhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// DefaultMaxRetryAfter is the longest wait that a server can ask for where
// [TransportOptions.MaxRetryAfter] is 0.
const DefaultMaxRetryAfter = time.Minute

// TransportOptions say how a [RoundTripper] treats requests and responses. The zero
// TransportOptions are the defaults.
type TransportOptions struct {
	// Base sends the requests; nil is [http.DefaultTransport].
	Base http.RoundTripper `json:"-" yaml:"-"`
	// Key is what [KeyFrom] returns for a request; nil: its host.
	Key Key `json:"-" yaml:"-"`
	// Failed tells which responses the strategies see as failures; nil: those with
	// status 429, 502, 503 and 504. It must not read the body.
	Failed func(resp *http.Response) bool `json:"-" yaml:"-"`
	// Idempotent tells which requests may be sent again when it is not known what
	// became of them; nil: GET, HEAD, OPTIONS, TRACE, PUT and DELETE, and whatever
	// has an Idempotency-Key. One whose body cannot be had again by GetBody is never
	// sent again.
	Idempotent func(r *http.Request) bool `json:"-" yaml:"-"`
	// MaxRetryAfter is the longest wait that a server can ask for with Retry-After.
	// Longer ones are cut to it, so that a retry may come before the server asked for
	// it. With -1 nothing is cut; then retry.Options.MaxRetryAfter decides, and a retry
	// returns a response that asks for more at once. 0 is a minute.
	MaxRetryAfter time.Duration `json:"max_retry_after,omitempty" yaml:"max_retry_after,omitempty"`
	// PauseOnRetryAfter, where set, holds back all requests to a host that has
	// answered one with 429 or 503 and Retry-After. The same gate must stand in the
	// pipeline, see [Gate].
	PauseOnRetryAfter *Gate `json:"-" yaml:"-"`
}

// Validate returns what is wrong with the options, or nil.
func (o *TransportOptions) Validate() error {
	if o != nil && o.MaxRetryAfter < -1 {
		return fmt.Errorf("weirhttp: invalid TransportOptions: MaxRetryAfter is %v, must be at least 0, or -1 for no limit", o.MaxRetryAfter)
	}
	return nil
}

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
		full.MaxRetryAfter = longest
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

// A RoundTripper sends requests through a pipeline: an [http.RoundTripper] for
// [http.Client]. Make one with [Transport]. It is safe for concurrent use if its
// Base is, as it has to be.
//
// # What the strategies see
//
// A response that counts as a failure comes with a [*StatusError], so that a retry
// or a circuit breaker sees it fail. The caller does not: if that is how it ends,
// the caller gets the response, as from any other transport. An error of a strategy,
// such as a limiter's rejection, is the caller's error.
//
// A retry waits at least as long as Retry-After asks for, in seconds or as a date, up to
// [TransportOptions.MaxRetryAfter].
// Give it [Retryable], so that it does not wait for requests that are not sent again:
//
//	retry.New(&retry.Options{Handle: weirhttp.Retryable})
//
// Whatever a strategy tries, a request goes out a second time only if it is
// idempotent and has no body or GetBody; and while the first is still under way
// only if its method is safe. So a hedge hedges a GET, and leaves a PUT alone.
//
// # Bodies
//
// The response that the caller gets stays usable when the strategies are done: the
// end of a timeout or of a hedge does not end the reading of the body, only the
// caller's own context does. The body has to be read to its end or closed, as ever.
// All other responses are closed. Of one that an attempt follows, up to 4 KiB are
// read before, so that its connection can be used again. Where a retry goes by
// responses that are no failures, they stay open until it is done: let
// [TransportOptions.Failed] call them failures. A strategy that returns a response of
// its own must not build it upon the body of one of ours.
type RoundTripper struct {
	pipeline *pipeline.Pipeline
	options  TransportOptions
	problem  error
}

// Transport makes a RoundTripper of p. A nil p runs requests and nothing else, a nil
// o means the defaults. If o is not valid, every request fails with what Validate
// says.
func Transport(p *pipeline.Pipeline, o *TransportOptions) *RoundTripper {
	return &RoundTripper{pipeline: p, options: o.withDefaults(), problem: o.Validate()}
}

// Validate returns what is wrong with the options, or nil.
func (t *RoundTripper) Validate() error { return t.problem }

// CloseIdleConnections closes those of the base; see [http.Client.CloseIdleConnections].
func (t *RoundTripper) CloseIdleConnections() {
	if base, ok := t.options.Base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

// RoundTrip sends r through the pipeline. It implements [http.RoundTripper].
func (t *RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.problem != nil {
		closeRequestBody(r)
		return nil, t.problem
	}
	x := &exchange{Context: r.Context(), transport: t, request: r}
	settled := false
	defer func() {
		if !settled { // a panic, or runtime.Goexit
			x.abandon()
		}
	}()
	x.responses, x.caller = x.array[:0], x.Context
	if r.Cancel != nil { //nolint:staticcheck // deprecated, and http.Client sets it
		var stop context.CancelCauseFunc
		x.Context, stop = withCancelChannel(x.Context, r.Cancel) //nolint:staticcheck // see above
		x.cancellable = true
		defer stop(nil)
	}
	x.host = hostOf(r)
	x.repeatable = t.options.mayRepeatRequest(r)
	if t.options.Key != nil {
		x.key = t.options.Key(r)
	}
	resp, err := pipeline.ExecuteValue(x, t.pipeline, x.send)
	resp, err = x.settle(resp, err)
	settled = true
	return resp, err
}

var (
	errNoResponse  = errors.New("weirhttp: neither a response nor an error came out of the pipeline")
	errBaseNothing = errors.New("weirhttp: the base transport returned neither a response nor an error")
)

// HostFrom returns the host that the request of this execution goes to, in lower
// case, with its port unless it is that of the scheme: what a limiter for each host
// is partitioned by.
//
//	ratelimit.NewPartitioned(perHost, weirhttp.HostFrom, nil)
//
// It is "" in a context that does not come from a [RoundTripper].
func HostFrom(ctx context.Context) string {
	if x := exchangeFrom(ctx); x != nil {
		return x.host
	}
	return ""
}

// KeyFrom returns what [TransportOptions.Key] says about the request of this
// execution, or, without one, what [HostFrom] does.
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
