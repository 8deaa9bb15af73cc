package weirgrpc

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/internal/admission"
)

// A Limit is the limiter or the pipeline of a [Policy]. [Of], [ByKey], [ByRequest] and [ByPipeline] make one:
//
//	weirgrpc.Policy{Limit: weirgrpc.ByKey(perUser, weirgrpc.Metadata("x-user"))}
type Limit struct{ core admission.Limit[*Request] }

// Of returns the Limit of a limiter that all calls share.
func Of(l limiter.Limiter) Limit { return Limit{admission.Of[*Request](l)} }

// ByKey returns the Limit of a limiter for each key; see [PerKey]. If key is nil, it is [PeerAddress] without options.
func ByKey(l limiter.Partitioned[string], key Key) Limit {
	if key == nil {
		key = peerAddress(nil)
	}
	return Limit{admission.ByKey(l, key)}
}

// ByRequest returns the Limit of a limiter that is partitioned by the call itself: for keys that are not strings, and for
// limiters of a registry, which find the call with [RequestFrom].
func ByRequest(l limiter.Partitioned[*Request]) Limit { return Limit{admission.ByRequest(l)} }

// ByPipeline returns the Limit that runs the rest of the call, later policies and the handler included, through p. If p
// comes from a registry, a reload changes the limit.
//
// Strategies see an error of the handler as a [*HandlerError] if its code is a failure; see [LimitsOptions.Failed]. For
// strategies, other errors of the handler are successes; the client gets them all the same. A strategy can answer a unary
// call in place of the handler by returning the response as the value. If the pipeline ends with another error, the client gets a
// [*CallRejectedError] for it: RESOURCE_EXHAUSTED for a rate limit that says when to come back, UNAVAILABLE for other
// rejections and closed pipelines, DEADLINE_EXCEEDED for a timeout, the status of an error that has one, and INTERNAL for
// all others.
//
// A retry runs the handler of a unary call again, but never twice at once. What an earlier attempt has set as header
// and trailer stays. The handler of a stream runs once: another attempt fails.
//
// When a strategy such as a timeout has ended the context of a stream's handler, the messages that the stream then begins
// to receive or send fail, as with [Policy.Timeout].
//
// A limiter that is partitioned by the call finds it with [RequestFrom]. Make such a policy the last one of its method.
// If a later policy rejects the call, a concurrency limit inside the pipeline gets its permits back, but a rate limit
// does not get back the tokens that it has spent.
func ByPipeline(p *pipeline.Pipeline) Limit { return Limit{admission.ByPipeline[*Request](p)} }

// A Policy limits calls. It says which limiter is asked, what a call costs, and what happens to a call that is rejected. Limit
// must be set. Two policies share permits only if they have the same limiter.
type Policy struct {
	// Limit is the limiter or the pipeline.
	Limit Limit `json:"-" yaml:"-"`

	// Cost returns how many permits a call takes, or a message if Streams is per
	// message. If nil, it takes 1. A call of cost 0 takes none, and is admitted if any
	// are left.
	Cost func(r *Request) int `json:"-" yaml:"-"`
	// Metered includes the policy in calls of [Charge] without names. By default Charge
	// corrects the policy only by its name.
	Metered bool `json:"metered,omitempty" yaml:"metered,omitempty"`
	// Streams selects what the policy limits in a stream. The default is [StreamHold].
	// It is ignored for unary calls.
	Streams StreamMode `json:"streams,omitempty" yaml:"streams,omitempty"`

	// MaxWait bounds the wait in the limiter's queue. With 0, the default, a call waits
	// until its context ends; below 0 it does not wait.
	MaxWait time.Duration `json:"max_wait,omitempty" yaml:"max_wait,omitempty"`
	// Timeout bounds how long the handler of a call may hold its permits. With 0, the
	// default, it is not bounded. After that time the context of the handler is done,
	// and receiving and sending fail. If the handler then returns an error of its
	// context, the status is DEADLINE_EXCEEDED, and the error wraps a
	// [*timeout.Error]. The shortest Timeout of a method applies.
	// A RecvMsg that is already waiting returns only when the client sends a message or
	// goes away: use keepalive and the client's deadline for streams.
	Timeout time.Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"`
	// FailOpen admits a call if the limiter cannot decide: the limiter returns an error
	// or is closed, or the store of a shared limiter is away
	// ([limiter.ReasonUnavailable]) or does not answer within MaxWait. By default such a
	// call gets UNAVAILABLE. FailOpen does not admit a call that costs more than the
	// limiter can ever grant, nor a rejection with [limiter.ReasonPartitionLimit]. A panic
	// of the limiter reaches the caller.
	FailOpen bool `json:"fail_open,omitempty" yaml:"fail_open,omitempty"`
	// Shadow makes the policy decide and report, but never reject and never wait. Its
	// Timeout is not in force, and clients are not told its quota. It cannot be
	// combined with a pipeline: strategies have their own Shadow.
	Shadow bool `json:"shadow,omitempty" yaml:"shadow,omitempty"`

	// Code is the code of a rejection. With 0, the default, it is RESOURCE_EXHAUSTED if
	// each key has a limiter of its own, the rejection has a RetryAfter, MaxWait has ended
	// the wait for a bucket or a window, or the call costs more than the limiter can ever
	// grant: the client is over its quota. Otherwise it is
	// UNAVAILABLE, because the server is short of capacity, and also if the limiter has
	// too many keys. A call that the limiter could not decide about, because it failed or
	// is closed or its store is away, gets UNAVAILABLE in any case.
	Code codes.Code `json:"code,omitempty" yaml:"code,omitempty"`
	// Headers replaces [LimitsOptions.Headers] for this policy if it is not
	// [NoHeaders].
	Headers Headers `json:"headers,omitempty" yaml:"headers,omitempty"`
	// Quota, in permits, and Window are what the metadata tells the client; they limit
	// nothing. With a Quota of 0, the default, the metadata describes the limits in
	// force of a token bucket or a window.
	Quota  int64         `json:"quota,omitempty" yaml:"quota,omitempty"`
	Window time.Duration `json:"window,omitempty" yaml:"window,omitempty"`
}

// A StreamMode selects what a policy limits in a stream. Its text form is "hold", "admit", "received", "sent" or
// "messages".
type StreamMode uint8

const (
	// StreamHold asks once, when the stream begins, and holds the permits until the
	// handler returns. It is the zero value, and what a concurrency limiter needs.
	StreamHold StreamMode = iota
	// StreamAdmit asks once, when the stream begins, and gives the permits of a
	// concurrency limiter back when the stream has been admitted.
	StreamAdmit
	// StreamReceived asks about each message of the client when it has arrived. Its
	// permits are held until the handler receives the next message or returns.
	StreamReceived
	// StreamSent asks about each message of the handler before it is sent. Its permits
	// are held until it has been handed to the connection.
	StreamSent
	// StreamMessages asks about messages in both directions, as StreamReceived and
	// StreamSent do. Use it only for rates: a handler that answers a message still holds
	// the permit of that message, so with a concurrency limiter handlers would wait for
	// each other.
	StreamMessages
)

var streamTexts = textenum.Texts[StreamMode]{Package: "weirgrpc", Type: "StreamMode", Texts: []string{
	StreamHold: "hold", StreamAdmit: "admit", StreamReceived: "received", StreamSent: "sent", StreamMessages: "messages",
}}

// String returns the text form, or StreamMode(n) for any other number.
func (m StreamMode) String() string { return streamTexts.String(m) }

// MarshalText implements [encoding.TextMarshaler].
func (m StreamMode) MarshalText() ([]byte, error) { return streamTexts.Marshal(m) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *StreamMode) UnmarshalText(text []byte) error { return streamTexts.Unmarshal(m, text) }

// A preparedPolicy is a Policy that is ready for calls.
type preparedPolicy struct {
	admission.Policy[*Request]
	options Policy
}

// clone returns a copy of p. A stream has a copy for each direction, so that the grants of messages that it receives are told apart
// from those of messages that it sends.
func (p *preparedPolicy) clone() *preparedPolicy {
	c := *p
	return &c
}

// perMessage reports whether the policy limits the messages of streams, and not the streams.
func (p *preparedPolicy) perMessage() bool { return p.options.Streams >= StreamReceived }

// Headers selects the metadata that tells a client how much of its quota is left. It is in the header of a successful
// response and, so that the client can retry, in the trailer of an error. It does not affect RetryInfo and
// grpc-retry-pushback-ms, which a rejection has whenever the wait is known. Its text form is "none", "legacy" or "draft-11".
type Headers uint8

const (
	// NoHeaders sends none. It is the zero value.
	NoHeaders Headers = iota
	// Legacy sends x-ratelimit-limit, x-ratelimit-remaining and x-ratelimit-reset. No
	// standard defines them; here reset is a Unix time in seconds. If the method has
	// several policies, they describe the policy with the fewest remaining permits.
	Legacy
	// Draft11 sends ratelimit-policy and ratelimit, one value for each policy, in the
	// form of draft-ietf-httpapi-ratelimit-headers-11. The next draft can differ.
	Draft11
)

var headersTexts = admission.HeadersTexts[Headers]("weirgrpc")

// String returns the text form, or Headers(n) for any other number.
func (k Headers) String() string { return headersTexts.String(k) }

// MarshalText implements [encoding.TextMarshaler].
func (k Headers) MarshalText() ([]byte, error) { return headersTexts.Marshal(k) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (k *Headers) UnmarshalText(text []byte) error { return headersTexts.Unmarshal(k, text) }
