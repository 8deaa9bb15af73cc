package weirgrpc

import (
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-go/weir/transport/internal/forwarded"
)

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
