package weirgrpc

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// DefaultMaxRetryAfter is the default of [ClientOptions.MaxRetryAfter].
const DefaultMaxRetryAfter = time.Minute

// ClientOptions are the options of [NewClient]. The zero value has the defaults.
//
// Methods have the form "/package.Service/Method". A pattern is a method, "/package.Service/*" for all methods of a
// service, or "*" for all methods.
type ClientOptions struct {
	// Pipelines are the pipelines of methods, by pattern. The most specific pattern applies: the method itself, its
	// service, then "*". If no pattern matches, the pipeline is that of [NewClient]. Calls of methods with a nil
	// pipeline do not run through one. If a registry reloads a pipeline, the reload applies to the next call.
	Pipelines map[string]*pipeline.Pipeline `json:"-" yaml:"-"`
	// Idempotent reports whether a call of the method can be made again although the server may have processed it. If
	// nil, a method is idempotent if a pattern of IdempotentMethods matches it, or if its .proto file says so: the
	// option idempotency_level is NO_SIDE_EFFECTS or IDEMPOTENT, and the program links the generated code.
	Idempotent func(method string) bool `json:"-" yaml:"-"`
	// IdempotentMethods are patterns of methods that are idempotent, in addition to the methods whose .proto file says
	// so. It must be empty if Idempotent is set.
	IdempotentMethods []string `json:"idempotent_methods,omitempty" yaml:"idempotent_methods,omitempty"`
	// RetryCodes are the codes after which calls of idempotent methods can be made again. If nil, they are UNAVAILABLE
	// and DEADLINE_EXCEEDED. A rejection by a server that says when to come back can be retried in any case; see
	// [StatusError.Retryable].
	RetryCodes []codes.Code `json:"-" yaml:"-"`
	// Failed reports whether strategies see a code as a failure. If nil, the failures are UNKNOWN, DEADLINE_EXCEEDED,
	// RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE and DATA_LOSS. It is not called for OK, nor for an attempt whose context
	// has ended, which is always a failure.
	Failed func(code codes.Code) bool `json:"-" yaml:"-"`
	// MaxRetryAfter bounds the wait that a server can ask for. Longer waits are cut to it, so that a retry can come
	// earlier than the server asked. With 0, the default, it is [DefaultMaxRetryAfter]. With -1 no wait is cut: if a
	// server asks for more than retry.Options.MaxRetryAfter, the retry does not wait, and the caller gets that status.
	MaxRetryAfter time.Duration `json:"max_retry_after,omitempty" yaml:"max_retry_after,omitempty"`
	// Listener receives [EventServiceConfigRetry]. If nil, it is logged with [slog.Default].
	Listener pipeline.Listener `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *ClientOptions) Validate() error {
	if o == nil {
		return nil
	}
	var problems validate.Problems
	for _, pattern := range slices.Sorted(maps.Keys(o.Pipelines)) {
		if !validPattern(pattern) {
			problems.Add(fmt.Sprintf("Pipelines[%s]", pattern), nil, methodsProblem)
		}
	}
	for i, pattern := range o.IdempotentMethods {
		if !validPattern(pattern) {
			problems.Add(fmt.Sprintf("IdempotentMethods[%d]", i), pattern, methodsProblem)
		}
	}
	if o.Idempotent != nil && len(o.IdempotentMethods) > 0 {
		problems.Add("IdempotentMethods", nil, "must be empty if {Idempotent} is set")
	}
	for i, code := range o.RetryCodes {
		if code == codes.OK {
			problems.Add(fmt.Sprintf("RetryCodes[%d]", i), nil, "must not be OK")
		}
	}
	if o.MaxRetryAfter < -1 {
		problems.Add("MaxRetryAfter", o.MaxRetryAfter, "must be at least 0, or -1 for no limit")
	}
	return problems.Err("weirgrpc")
}

// withDefaults returns a copy of o in which every option is set, except the Listener, and which shares nothing with o.
func (o *ClientOptions) withDefaults() ClientOptions {
	var full ClientOptions
	if o != nil {
		full = *o
	}
	full.Pipelines = maps.Clone(full.Pipelines)
	if full.Idempotent == nil {
		full.Idempotent = idempotentByPattern(full.IdempotentMethods)
	}
	if full.RetryCodes = slices.Clone(full.RetryCodes); full.RetryCodes == nil {
		full.RetryCodes = []codes.Code{codes.Unavailable, codes.DeadlineExceeded}
	}
	if full.Failed == nil {
		full.Failed = clientFailed
	}
	switch full.MaxRetryAfter {
	case 0:
		full.MaxRetryAfter = DefaultMaxRetryAfter
	case -1:
		full.MaxRetryAfter = math.MaxInt64
	}
	return full
}

// clientFailed is the default of [ClientOptions.Failed].
func clientFailed(code codes.Code) bool {
	switch code {
	case codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal, codes.Unavailable, codes.DataLoss:
		return true
	default:
		return false
	}
}

// A Client sends the calls of a [grpc.ClientConn] through pipelines. Make one with [NewClient], and a connection with
// its [Client.DialOptions]. A Client can serve any number of connections. It is safe for concurrent use.
//
// # What the strategies see
//
// Strategies see the reply as the result, and a status that counts as a failure as a [*StatusError]. Any other status,
// such as NOT_FOUND, is a *StatusError too, but it is the result of an attempt that has not failed: a retry does not
// repeat it, and a circuit breaker counts it as a success. The caller gets it as the error of the call.
//
// [OutgoingMethod] and [OutgoingTarget] are key functions for a partitioned limiter in the pipeline.
//
// # What the caller gets
//
// Every error has a status, for [status.FromError] and [status.Code]. The status of the server is unchanged, with its
// details. A strategy's own error keeps its type and gets a code: RESOURCE_EXHAUSTED for the rejection of a limiter,
// DEADLINE_EXCEEDED for a timeout, UNAVAILABLE for any other rejection, such as that of an open circuit, and CANCELLED or
// DEADLINE_EXCEEDED if the caller's context has ended. [pipeline.RetryAfter] returns the wait that an error asks for.
//
// [grpc.Header], [grpc.Trailer] and [grpc.Peer] are those of the attempt that decided. A function of [grpc.OnFinish] is
// called once, when the call has ended.
//
// # Retries
//
// A retry waits at least as long as the server asks for, up to [ClientOptions.MaxRetryAfter]. A server asks with the
// trailer grpc-retry-pushback-ms (gRFC A6) or with a RetryInfo in the details of the status. If there are both, the
// trailer decides. Give the retry [Retryable], so that it does not wait for calls that are not made again:
//
//	retry.New(&retry.Options{Handle: weirgrpc.Retryable})
//
// Whatever a strategy does, a call is sent a second time only if its method is idempotent, see
// [ClientOptions.Idempotent], or if the server has not processed the attempts before; see [StatusError.Retryable]. Two
// attempts run at the same time, for a hedge, only if the method is idempotent. Each attempt has a reply of its own. A
// call returns when all its attempts have ended: a strategy that gives up an attempt must end the attempt's context, as a
// hedge does, and grpc-go then ends the attempt at once.
//
// If a retryPolicy in the service config turns on grpc-go's own retry, each attempt of the pipeline can become several
// attempts of grpc-go. [Client.DialOptions] turns that retry off.
//
// # Streams
//
// The pipeline of a stream runs until the stream has ended, as [grpc.ClientConn.NewStream] describes it: a permit is held
// until then, a timeout bounds the whole stream, and a circuit breaker counts its final status. A caller that abandons a
// stream must cancel its context.
//
// A retry repeats only the opening of a stream. A server's rejection comes from RecvMsg, when the stream is open and the
// caller may have sent messages. The caller can read [pipeline.RetryAfter] of that error and open the stream again.
type Client struct {
	pipeline *pipeline.Pipeline
	options  ClientOptions
	doubled  doubledMethods
}

// NewClient returns a Client that sends calls through p, or through the pipeline that [ClientOptions.Pipelines] has for
// the method. If p is nil, calls of the other methods do not run through a pipeline. If o is nil, the defaults apply. The
// error is a [weir.OptionsError].
func NewClient(p *pipeline.Pipeline, o *ClientOptions) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Client{pipeline: p, options: o.withDefaults()}, nil
}

// DialOptions returns the options for [grpc.NewClient]: both interceptors, and [grpc.WithDisableRetry], so that the
// pipelines alone decide about retries. Most callers want this.
//
// The interceptors come after, and so inside, those of earlier options. WithDisableRetry leaves the transparent retries
// of grpc-go in force, for calls that the server has certainly not seen.
func (c *Client) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(c.unaryInterceptor(true)),
		grpc.WithChainStreamInterceptor(c.streamInterceptor(true)),
		grpc.WithDisableRetry(),
	}
}

// UnaryInterceptor returns the interceptor for unary calls, for programs that order their interceptors themselves or
// leave the retries of some methods to the service config. See [EventServiceConfigRetry] for methods that both retry.
func (c *Client) UnaryInterceptor() grpc.UnaryClientInterceptor { return c.unaryInterceptor(false) }

// StreamInterceptor returns the interceptor for streams. See [Client.UnaryInterceptor].
func (c *Client) StreamInterceptor() grpc.StreamClientInterceptor { return c.streamInterceptor(false) }

// unaryInterceptor returns the interceptor of unary calls. alone: the connection has grpc-go's retries disabled.
func (c *Client) unaryInterceptor(alone bool) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		p := c.pipelineOf(method)
		if p == nil {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		x := &clientUnary{
			outgoingCall: outgoingCall{Context: ctx, client: c, method: method, conn: cc, alone: alone},
			request:      req, reply: reply, invoker: invoker,
		}
		x.setOptions(opts, false)
		if m, ok := reply.(protoreflect.Message); ok { // such as *dynamicpb.Message
			x.replyType = m.Type()
		}
		return x.run(p)
	}
}

// streamInterceptor returns the interceptor of streams. alone: the connection has grpc-go's retries disabled.
func (c *Client) streamInterceptor(alone bool) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		p := c.pipelineOf(method)
		if p == nil {
			return streamer(ctx, desc, cc, method, opts...)
		}
		x := &clientStream{
			outgoingCall: outgoingCall{Context: ctx, client: c, method: method, conn: cc, alone: alone},
			desc:         desc, streamer: streamer, opened: make(chan struct{}), over: make(chan struct{}),
		}
		x.setOptions(opts, true)
		return x.open(p)
	}
}
