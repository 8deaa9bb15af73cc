package weirhttp

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weir-go/weir/transport/internal/forwarded"
)

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
