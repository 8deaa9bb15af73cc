package weirgrpc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/pipeline"
)

// ClientOptions are the options of [NewClient]. The zero value has the defaults.
//
// Methods have the form "/package.Service/Method". A pattern is a method, "/package.Service/*" for all methods of a
// service, or "*" for all methods.
type ClientOptions struct {
	// Pipelines are the pipelines of methods, by pattern. The most specific pattern applies: the method itself, its
	// service, then "*". If no pattern matches, the pipeline is that of [NewClient]. A nil pipeline sends the calls of its
	// methods as they are. If a registry reloads a pipeline, the reload applies to the next call.
	Pipelines map[string]*pipeline.Pipeline `json:"-" yaml:"-"`
	// IdempotentMethods are patterns of methods whose calls can be made again although the server may have processed
	// them. Methods whose .proto file says so are idempotent, too: the option idempotency_level is NO_SIDE_EFFECTS or
	// IDEMPOTENT, and the program links the generated code.
	IdempotentMethods []string `json:"idempotent_methods,omitempty" yaml:"idempotent_methods,omitempty"`
	// Failed reports whether strategies see a code as a failure. If nil, the failures are UNKNOWN, DEADLINE_EXCEEDED,
	// RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE and DATA_LOSS. It is not called for OK, nor for an attempt whose context
	// has ended, which is always a failure.
	Failed func(code codes.Code) bool `json:"-" yaml:"-"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *ClientOptions) Validate() error {
	if o == nil {
		return nil
	}
	var problems validate.Problems
	for _, pattern := range slices.Sorted(maps.Keys(o.Pipelines)) {
		checkPattern(&problems, fmt.Sprintf("Pipelines[%s]", pattern), nil, pattern)
	}
	for i, pattern := range o.IdempotentMethods {
		checkPattern(&problems, fmt.Sprintf("IdempotentMethods[%d]", i), pattern, pattern)
	}
	return problems.Err("weirgrpc")
}

func failedByDefault(code codes.Code) bool {
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
// [OutgoingMethod] is a key function for a partitioned limiter in the pipeline.
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
// A retry waits at least as long as the server asks for; if that is more than retry.Options.MaxRetryAfter, the caller gets the
// status at once. A server asks with the trailer grpc-retry-pushback-ms (gRFC A6) or with a RetryInfo in the details of the
// status. If there are both, the trailer decides. The errors of a call that is not made again say so: a retry without a Handle
// does not wait for it.
//
// Whatever a strategy does, a call is sent a second time only if its method is idempotent, see
// [ClientOptions.IdempotentMethods], or if the server has not processed the attempts before; see [StatusError.Retryable]. Two
// attempts run at the same time, for a hedge, only if the method is idempotent. A call returns when all its attempts have
// ended: a strategy that gives up an attempt must end the attempt's context, as a hedge does, and grpc-go then ends the attempt
// at once.
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
// RecvMsg, SendMsg and Header return the end of a stream when the pipeline has ended, so that a caller that opens the next stream
// finds its permit free.
//
// A retry repeats only the opening of a stream. A server's rejection comes from RecvMsg, when the stream is open and the
// caller may have sent messages. The caller can read [pipeline.RetryAfter] of that error and open the stream again.
type Client struct {
	pipelines  methods[*pipeline.Pipeline] // nil: calls do not run through one
	idempotent methods[bool]
	failed     func(code codes.Code) bool
}

// NewClient returns a Client that sends calls through p, or through the pipeline that [ClientOptions.Pipelines] has for
// the method. If p is nil, calls of the other methods do not run through a pipeline. If o is nil, the defaults apply. The
// error is a [weir.OptionsError].
func NewClient(p *pipeline.Pipeline, o *ClientOptions) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Client{pipelines: methods[*pipeline.Pipeline]{"": p}, idempotent: make(methods[bool]), failed: failedByDefault}
	if o != nil {
		for pattern, p := range o.Pipelines {
			c.pipelines.set(pattern, p)
		}
		for _, pattern := range o.IdempotentMethods {
			c.idempotent.set(pattern, true)
		}
		if o.Failed != nil {
			c.failed = o.Failed
		}
	}
	return c, nil
}

// DialOptions returns the options for [grpc.NewClient]: both interceptors, and [grpc.WithDisableRetry], so that the
// pipelines alone decide about retries. Most callers want this.
//
// The interceptors come after, and so inside, those of earlier options. WithDisableRetry leaves the transparent retries
// of grpc-go in force, for calls that the server has certainly not seen.
func (c *Client) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(c.UnaryInterceptor()),
		grpc.WithChainStreamInterceptor(c.StreamInterceptor()),
		grpc.WithDisableRetry(),
	}
}

// UnaryInterceptor returns the interceptor for unary calls, for programs that order their interceptors themselves. Add
// [grpc.WithDisableRetry], or leave the retry out of the pipelines: otherwise the attempts of both multiply if the service
// config has a retryPolicy.
func (c *Client) UnaryInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		p := c.pipelines.of(method)
		if p == nil {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		x := &clientUnary{request: req, reply: reply, invoker: invoker}
		return x.run(x.begin(ctx, c, method, cc, opts), p)
	}
}

// StreamInterceptor returns the interceptor for streams. See [Client.UnaryInterceptor].
func (c *Client) StreamInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		p := c.pipelines.of(method)
		if p == nil {
			return streamer(ctx, desc, cc, method, opts...)
		}
		x := &clientStream{desc: desc, streamer: streamer, opened: make(chan struct{}), over: make(chan struct{})}
		return x.open(x.begin(ctx, c, method, cc, opts), p)
	}
}

// isIdempotent reports whether a pattern matches the method, or its .proto file says that it is idempotent.
func (c *Client) isIdempotent(method string) bool {
	if c.idempotent.of(method) {
		return true
	}
	name := strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return false
	}
	options, ok := found.Options().(*descriptorpb.MethodOptions)
	return ok && options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN
}
