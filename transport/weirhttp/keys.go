package weirhttp

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weir-go/weir/transport/internal/admission"
	"github.com/weir-go/weir/transport/internal/forwarded"
)

// A Key returns the key of a request: requests with the same key share a limiter. It is called for every request, and
// must be safe for concurrent use.
//
// The keys of this package are never longer than 128 bytes, whatever a client sends: a longer one is replaced by its
// digest. A Key of the program that returns what a client sends must bound it, too; [Subject] does. The number of
// different keys is bounded elsewhere; see [PerKey].
type Key func(r *http.Request) string

// AmbiguousKey is the key of a request with several values where there must be one. The policy answers 400, also with FailOpen,
// and asks no limiter. If a Key took one of the values and the handler used another, a client would get a new limiter with each
// value that it makes up. [Composite] returns it if one of its keys does. A
// limiter that finds the key by itself, for [ByRequest] or in a pipeline, has one limiter for all such requests.
const AmbiguousKey = admission.AmbiguousKey

// Header returns the Key that is the value of a request header, such as X-Api-Key. All requests without the header have
// the key "", and those with several lines of it [AmbiguousKey].
//
// Use a header only if a proxy or middleware in front has checked it. Otherwise a client can send a new value with each
// request, and get a new limiter each time.
func Header(name string) Key {
	canonical := http.CanonicalHeaderKey(name)
	if canonical == "Host" { // net/http removes it from the header
		return func(r *http.Request) string { return admission.BoundedKey(r.Host) }
	}
	return func(r *http.Request) string { return admission.KeyOf(r.Header[canonical]) }
}

// Route returns the Key that is the pattern of the [http.ServeMux] that the request matched, such as "GET
// /orders/{id}": all orders share a limiter, and a client cannot make up keys by making up paths. All requests that
// matched no pattern have the key "".
//
// The mux sets the pattern, so wrap the handlers that are registered with it, not the mux.
func Route() Key {
	return func(r *http.Request) string { return admission.BoundedKey(r.Pattern) }
}

// Subject returns the Key that f finds in the request, such as the user that authentication has put into its context,
// or the tenant of a verified token. It panics if f is nil.
func Subject(f func(r *http.Request) string) Key { return admission.Subject[Key]("weirhttp", f) }

// Composite returns the Key of all keys together: requests share a limiter if they agree in every one. The key has the
// length of each part before the part, so that different parts never make the same key. It panics if a key is nil.
func Composite(keys ...Key) Key { return admission.Composite("weirhttp", keys) }

// RequestFrom returns the request that a context belongs to, or nil if there is none. Limiters in a pipeline find their
// key with it:
//
//	perTenant := func(ctx context.Context) string { return weirhttp.RequestFrom(ctx).Header.Get("X-Tenant") }
//	ratelimit.NewPartitioned(buckets, perTenant, nil)
//
// On a server, in the pipeline of a [ByPipeline] or of [Through], and in a handler inside of [Limits] or Through, it
// is the request as the innermost middleware of this package got it. Handlers share its header and its body, so a key
// function must only read it, and not its body.
//
// On a client, in the pipeline of a [Transport], it is a copy of the request as the caller gave it to the Transport, with
// a header and a URL of its own and without the body. All attempts at the request get the same copy, also attempts that
// run at the same time or after the caller has its answer. It must not be changed. A pipeline of a Transport in a handler
// gets the request that the Transport sends, not the one that the handler answers.
func RequestFrom(ctx context.Context) *http.Request {
	r, _ := ctx.Value(requestKey{}).(*http.Request)
	return r
}

// requestKey asks a context for the request of the nearest call, handlerRun or roundTrip.
type requestKey struct{}

// AddressOptions are the options of [ClientAddress]. The zero value uses the peer address of the connection, and counts
// IPv6 addresses by /64.
type AddressOptions struct {
	// Trusted are the addresses of the proxies in front of the server. The header is
	// read only if the connection comes from one of them, or if TrustUnix is set. By
	// default there are none. [ParseTrusted] parses them.
	Trusted []netip.Prefix `json:"trusted,omitempty" yaml:"trusted,omitempty"`
	// Header is the header in which the proxies write the address of their client. The
	// default is X-Forwarded-For. "Forwarded" is parsed as in RFC 7239, every other
	// header as a list of addresses. Name the header that your proxies set or
	// overwrite: they pass on all others as the client sent them.
	Header string `json:"header,omitempty" yaml:"header,omitempty"`
	// IPv6Bits is how many bits of an IPv6 address are in the key, from 1 to 128. With
	// 0 it is 64: a customer usually gets at least a /64, and can use any address in it.
	IPv6Bits int `json:"ipv6_bits,omitempty" yaml:"ipv6_bits,omitempty"`
	// TrustUnix trusts every peer of a Unix socket like a proxy in Trusted, for example
	// nginx on the same machine. If false, all requests over Unix sockets have the key
	// "unknown".
	TrustUnix bool `json:"trust_unix,omitempty" yaml:"trust_unix,omitempty"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *AddressOptions) Validate() error { return (*forwarded.Options)(o).Validate("weirhttp") }

// ParseTrusted returns the prefixes for [AddressOptions.Trusted] of networks such as "10.0.0.0/8" and of single
// addresses. The error is a [weir.OptionsError] with every text that is neither.
func ParseTrusted(networks ...string) ([]netip.Prefix, error) {
	return forwarded.ParseTrusted("weirhttp", networks)
}

// ClientAddress returns the Key that is the address of the client: "192.0.2.1", or "2001:db8::/64" for an IPv6 address.
// If o is nil, the defaults apply. The error is a [weir.OptionsError].
//
// The client is the peer of the connection. If that is a trusted proxy, the header is read from its end, over all its
// lines: every proxy appends the address that it sees, so the last address that is not a trusted proxy's is the
// client's. The addresses before it can be made up. Reading stops at text that is not an address, after 64 addresses
// and after 16 KiB; the last proxy then counts as the client. An IPv4 address inside an IPv6 address (::ffff:0:0/96,
// 64:ff9b::/96) counts as IPv4. Connections without an address, such as those over a Unix socket, share the key
// "unknown"; see [AddressOptions.TrustUnix].
func ClientAddress(o *AddressOptions) (Key, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return clientAddress(o), nil
}

// clientAddress is ClientAddress for options that are valid.
func clientAddress(o *AddressOptions) Key {
	f := forwarded.NewFinder((*forwarded.Options)(o), http.CanonicalHeaderKey)
	return func(r *http.Request) string {
		text, addr := forwarded.ParseAddress(r.RemoteAddr)
		return f.Find(text, addr, !addr.IsValid() && overUnix(r), func(header string) []string { return r.Header[header] })
	}
}

// overUnix reports whether the server has accepted the connection on a Unix socket.
func overUnix(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && strings.HasPrefix(local.Network(), "unix")
}
