package weirhttp

import (
	"net/http"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/status"
)

// A Limit is the limiter or the pipeline of a [Policy]. [Of], [ByKey], [ByRequest] and [ByPipeline] make one:
//
//	weirhttp.Policy{Limit: weirhttp.ByKey(perUser, weirhttp.Subject(userOf))}
type Limit struct {
	core admission.Limit[*http.Request]
}

// Of returns the Limit of a limiter that all requests share.
func Of(l limiter.Limiter) Limit { return Limit{admission.Of[*http.Request](l)} }

// ByKey returns the Limit of a limiter for each key; see [PerKey]. If key is nil, it is [ClientAddress] without options.
func ByKey(l limiter.Partitioned[string], key Key) Limit {
	if key == nil {
		key = clientAddress(nil)
	}
	return Limit{admission.ByKey(l, key)}
}

// ByRequest returns the Limit of a limiter that is partitioned by the request itself: for keys that are not strings, and
// for limiters of a registry, which find the request with [RequestFrom].
func ByRequest(l limiter.Partitioned[*http.Request]) Limit { return Limit{admission.ByRequest(l)} }

// ByPipeline returns the Limit that runs the rest of the request, later policies included, through p. If p comes from a
// registry, a reload changes the limit. The rules of [Through] apply.
//
// A limiter that is partitioned by the request finds it with [RequestFrom]:
//
//	b.Add(ratelimit.NewPartitioned(perUser, weirhttp.RequestFrom, nil))
//
// Make such a policy the last one of its route. If a later policy rejects the request, a concurrency limit inside the
// pipeline gets its permits back, but a rate limit does not get back the tokens that it has spent.
func ByPipeline(p *pipeline.Pipeline) Limit { return Limit{admission.ByPipeline[*http.Request](p)} }

// A Policy limits requests. It says which limiter is asked, what a request costs, and what happens to a request that is rejected.
// Limit must be set. Two policies share permits only if they have the same limiter.
type Policy struct {
	// Limit is the limiter or the pipeline.
	Limit Limit `json:"-" yaml:"-"`

	// Cost returns how many permits a request takes. If nil, a request takes 1. A
	// request of cost 0 takes none, and is admitted if any are left.
	Cost func(r *http.Request) int `json:"-" yaml:"-"`
	// Metered includes the policy when [Charge] is called without names. By default
	// Charge corrects the policy only if Charge is called with its name.
	Metered bool `json:"metered,omitempty" yaml:"metered,omitempty"`

	// MaxWait bounds the wait in the limiter's queue. With 0, the default, a request
	// waits as long as its client does; below 0 it does not wait.
	MaxWait time.Duration `json:"max_wait,omitempty" yaml:"max_wait,omitempty"`
	// Timeout bounds how long the handler of a request may hold its permits. With 0,
	// the default, it is not bounded. When the time is over, the context of the
	// handler is done and reading the body fails; a second later writing fails, too.
	// So neither a client that sends slowly nor one that does not read keeps a
	// permit. If the handler then returns without having begun to answer, the answer
	// is 503, and the [context.Cause] of the handler's context is a [*timeout.Error].
	// The shortest Timeout of a route applies. Do not set it for streaming handlers.
	Timeout time.Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"`
	// FailOpen admits a request if the limiter cannot decide: the limiter returns an
	// error or is closed, or the store of a shared limiter is away
	// ([limiter.ReasonUnavailable]) or does not answer within MaxWait. By default such
	// a request gets 503. Some cases are decisions, which FailOpen does not change: a
	// cost above what the limiter can grant, and a rejection with
	// [limiter.ReasonPartitionLimit]. A panic of the limiter reaches the caller.
	FailOpen bool `json:"fail_open,omitempty" yaml:"fail_open,omitempty"`
	// Shadow makes the policy decide and report, but never reject and never wait. Its
	// Timeout is not in force, and clients are not told its quota. It cannot be
	// combined with a pipeline: strategies have their own Shadow.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`

	// Status is the status of a rejected request, from 400 to 599. With 0, the
	// default, it is 429 if each key has a limiter of its own, the rejection has a
	// RetryAfter, MaxWait has ended the wait for a bucket or a window, or the request
	// costs more than the limiter can ever grant: the client is over its quota. Otherwise it is 503, because the server is short of
	// capacity, and also if the limiter has too many keys. A request that the limiter
	// could not decide about, because it failed or is closed or its store is away,
	// gets 503 in any case.
	Status int `json:"status,omitempty" yaml:"status,omitempty"`
	// OnRejected replaces [LimitsOptions.OnRejected] for this policy.
	OnRejected Body `json:"-" yaml:"-"`
	// Headers replaces [LimitsOptions.Headers] for this policy if it is not
	// [NoHeaders].
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Quota, in permits, and Window are what the header fields tell the client; they
	// limit nothing. With a Quota of 0, the default, the fields describe the limits in
	// force of a token bucket or a window, and are not sent for other limiters or a
	// pipeline.
	Quota  int64         `json:"quota,omitempty" yaml:"quota,omitempty"`
	Window time.Duration `json:"window,omitempty" yaml:"window,omitempty"`
}

// A preparedPolicy is a Policy that is ready for requests.
type preparedPolicy struct {
	admission.Policy[*http.Request]
	options  Policy
	handlers *handlerPipeline // runs handlers in the pipeline; nil: there is none
}

// statusFor returns the status of a request that the policy does not admit.
func (p *preparedPolicy) statusFor(cause status.Cause) int {
	if own := p.options.Status; own != 0 && cause.Rejected() {
		return own
	}
	return cause.HTTP()
}

// Headers selects the header fields that tell a client how much of its quota is left, in answers to admitted and to
// rejected requests. Retry-After does not depend on it: a rejection has it whenever it is known. In configuration files
// it is "none", "legacy" or "draft-11".
type Headers uint8

const (
	// NoHeaders sends none. It is the zero value.
	NoHeaders Headers = iota
	// Legacy sends X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset. No
	// standard defines them; here Reset is a Unix time in seconds, as in the APIs that
	// made them known. If the route has several policies, the fields describe the
	// policy with the fewest remaining permits.
	Legacy
	// Draft11 sends RateLimit-Policy and RateLimit, one line for each policy, in the
	// form of draft-ietf-httpapi-ratelimit-headers-11. The next draft can differ.
	Draft11
)

var headersTexts = admission.HeadersTexts[Headers]("weirhttp")

// String returns the text form, or Headers(n) for any other number.
func (k Headers) String() string { return headersTexts.String(k) }

// MarshalText implements [encoding.TextMarshaler].
func (k Headers) MarshalText() ([]byte, error) { return headersTexts.Marshal(k) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Headers) UnmarshalText(text []byte) error { return headersTexts.Unmarshal(k, text) }
