package weirgrpc

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir/transport/internal/admission"
)

// A Request is a call of a server, or a message of a stream, as policies see it. It must not be kept or changed.
type Request struct {
	// Method is the full name of the method, "/package.Service/Method".
	Method string
	// Message is the request of a unary call, or the message of a stream that a policy
	// with [StreamReceived], [StreamSent] or [StreamMessages] is asked about. When a
	// stream begins, it is nil.
	Message any
	// Stream reports whether the call is a stream.
	Stream bool

	ctx context.Context
}

// Context returns the context of the call. It has the incoming metadata and the peer.
func (r *Request) Context() context.Context { return r.ctx }

// Metadata returns the value of a key of the incoming metadata, or "" if there is none or more than one: which of several
// a handler uses is not known.
func (r *Request) Metadata(key string) string {
	if values := metadata.ValueFromIncomingContext(r.ctx, strings.ToLower(key)); len(values) == 1 {
		return values[0]
	}
	return ""
}

// A Key returns the key of a call: calls with the same key share a limiter. It is called for every call, and must be safe
// for concurrent use.
//
// The Keys of this package replace a key of more than 128 bytes by its digest. [PerKey] bounds the number of keys.
type Key func(r *Request) string

// AmbiguousKey is what a Key returns for a call in which it finds several values where there must be one. Its policy
// answers INVALID_ARGUMENT, also with FailOpen, and asks no limiter: a Key that counted one of the values would not be
// about the value that the handler uses. [Composite] returns it if one of its keys does.
const AmbiguousKey = admission.AmbiguousKey

// Metadata returns the Key that is the value of an entry of the incoming metadata, such as "x-api-key". All calls without
// the entry have the key "", and those with several values of it [AmbiguousKey].
//
// Use it only if a proxy or an interceptor in front checks the value. Otherwise a client can send a new value with each
// call, and get a new limiter each time.
func Metadata(key string) Key {
	key = strings.ToLower(key)
	return func(r *Request) string { return admission.KeyOf(metadata.ValueFromIncomingContext(r.ctx, key)) }
}

// Method returns the Key that is the full name of the method. Clients can make up methods if the server has a handler for
// unknown services.
func Method() Key {
	return func(r *Request) string { return admission.BoundedKey(r.Method) }
}

// Subject returns the Key that f finds in the call, such as the user that authentication has put into its context, or
// the tenant in its message.
func Subject(f func(r *Request) string) Key {
	return func(r *Request) string { return admission.BoundedKey(f(r)) }
}

// Composite returns the Key that combines keys: calls share a limiter if they agree in all of them. Different parts never
// make the same key.
func Composite(keys ...Key) Key { return admission.Composite(keys) }

// RequestFrom returns the call of a server that a context belongs to, or nil if there is none. Key functions for limiters
// in the pipeline of [ByPipeline] use it:
//
//	perTenant := func(ctx context.Context) string { return weirgrpc.RequestFrom(ctx).Metadata("x-tenant") }
//	ratelimit.NewPartitioned(buckets, perTenant, nil)
//
// In a handler it returns the call as the innermost interceptor of this package got it.
func RequestFrom(ctx context.Context) *Request {
	if c := admission.CallOf[*Request](ctx); c != nil {
		return c.Request
	}
	return nil
}
