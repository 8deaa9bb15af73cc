package weirgrpc

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/forwarded"
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
// The Keys of this package replace a key of more than 128 bytes by its digest. A Key of the program that returns what a
// client sends must bound it, too; [Subject] does. [PerKey] bounds the number of keys.
type Key func(r *Request) string

// AmbiguousKey is what a Key returns for a call in which it finds several values where there must be one. Its policy
// answers INVALID_ARGUMENT, also with FailOpen, and asks no limiter: a Key that counted one of the values would not be
// about the value that the handler uses. [Composite] returns it if one of its keys does. A limiter that finds the key by
// itself, for [ByRequest] or in a pipeline, has one limiter for all such calls.
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
// the tenant in its message. It panics if f is nil.
func Subject(f func(r *Request) string) Key { return admission.Subject[Key]("weirgrpc", f) }

// Composite returns the Key that combines keys: calls share a limiter if they agree in all of them. Different parts never
// make the same key. It panics if a key is nil.
func Composite(keys ...Key) Key { return admission.Composite("weirgrpc", keys) }

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

// AddressOptions are the options of [PeerAddress]. The zero value uses the peer address of the connection, and counts
// IPv6 addresses by /64.
type AddressOptions struct {
	// Trusted are the addresses of the proxies in front of the server. The metadata is
	// read only if the connection comes from one of them, or if TrustUnix is set. By
	// default there are none. [ParseTrusted] parses them.
	Trusted []netip.Prefix `json:"trusted,omitempty" yaml:"trusted,omitempty"`
	// Header is the header in which the proxies write the address of their client, and
	// so a key of the metadata. The default is x-forwarded-for. "forwarded" is parsed as
	// in RFC 7239, any other as a list of addresses. Name a header that your proxies set
	// or overwrite: they forward all others as the client sent them.
	Header string `json:"header,omitempty" yaml:"header,omitempty"`
	// IPv6Bits is how many bits of an IPv6 address are in the key, from 1 to 128. With
	// 0 it is 64: a customer usually gets at least a /64, and can use any address in it.
	IPv6Bits int `json:"ipv6_bits,omitempty" yaml:"ipv6_bits,omitempty"`
	// TrustUnix trusts every peer of a Unix socket like a proxy in Trusted, for example
	// Envoy on the same machine. If false, all calls over Unix sockets have the key
	// "unknown".
	TrustUnix bool `json:"trust_unix,omitempty" yaml:"trust_unix,omitempty"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *AddressOptions) Validate() error { return (*forwarded.Options)(o).Validate("weirgrpc") }

// ParseTrusted returns the prefixes for [AddressOptions.Trusted] of networks such as "10.0.0.0/8" and of single
// addresses. The error is a [weir.OptionsError] with every text that is neither.
func ParseTrusted(networks ...string) ([]netip.Prefix, error) {
	return forwarded.ParseTrusted("weirgrpc", networks)
}

// PeerAddress returns the Key that is the address of the client: "192.0.2.1", or "2001:db8::/64" for an IPv6 address. If
// o is nil, the defaults apply. The error is a [weir.OptionsError].
//
// The client is the peer of the connection. If that is a trusted proxy, the addresses in the metadata are read from the
// last one back: every proxy appends the address that it sees, so the last address that is not a trusted proxy's is the
// client's. The client can make up the addresses before it. Reading stops at text that is not an address, after 64 addresses
// and after 16 KiB; the last proxy then counts as the client. Connections without an address, such as those over a Unix
// socket, share the key "unknown"; see [AddressOptions.TrustUnix].
func PeerAddress(o *AddressOptions) (Key, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return peerAddress(o), nil
}

// peerAddress is PeerAddress for options that are valid.
func peerAddress(o *AddressOptions) Key {
	f := forwarded.NewFinder((*forwarded.Options)(o), strings.ToLower)
	return func(r *Request) string {
		var from net.Addr
		if p, ok := peer.FromContext(r.ctx); ok {
			from = p.Addr
		}
		unix := from != nil && strings.HasPrefix(from.Network(), "unix")
		return f.Find("", addressOf(from), unix, func(key string) []string { return metadata.ValueFromIncomingContext(r.ctx, key) })
	}
}

// addressOf returns the IP address of a peer. If it has none, the address is not valid.
func addressOf(from net.Addr) netip.Addr {
	switch a := from.(type) {
	case nil:
		return netip.Addr{}
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	default: // a server that is a handler of net/http has the address as text
		_, addr := forwarded.ParseAddress(a.String())
		return addr
	}
}
