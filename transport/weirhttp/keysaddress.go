package weirhttp

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/transport/weirhttp/internal/forwarded"
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

const (
	defaultIPv6Bits      = 64
	defaultAddressHeader = "X-Forwarded-For"
	forwardedHeader      = "Forwarded"
)

// nat64 is the prefix of IPv4 addresses that a translator has embedded, RFC 6052.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// unknownAddress is the key of all requests whose connection has no IP address, such as one over a Unix socket.
const unknownAddress = "unknown"

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o is valid.
func (o *AddressOptions) Validate() error {
	if o == nil {
		return nil
	}
	var problems validate.Problems
	for i, p := range o.Trusted {
		if !p.IsValid() {
			problems.Add(fmt.Sprintf("Trusted[%d]", i), nil, "must be a valid prefix")
		}
	}
	if o.IPv6Bits < 0 || o.IPv6Bits > 128 {
		problems.Add("IPv6Bits", o.IPv6Bits, "must be from 1 to 128, or 0 for %d", defaultIPv6Bits)
	}
	if !forwarded.IsToken(o.Header) && o.Header != "" {
		problems.Add("Header", o.Header, "must be the name of a header")
	}
	return problems.Err("weirhttp")
}

// ParseTrusted returns the prefixes for [AddressOptions.Trusted] of networks such as "10.0.0.0/8" and of single
// addresses. The error is a [weir.OptionsError] with every text that is neither.
func ParseTrusted(networks ...string) ([]netip.Prefix, error) {
	var trusted []netip.Prefix
	var problems validate.Problems
	for i, text := range networks {
		prefix, err := netip.ParsePrefix(text)
		if addr, single := netip.ParseAddr(text); err != nil && single == nil {
			addr = addr.Unmap().WithZone("")
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			problems.Add(fmt.Sprintf("networks[%d]", i), text, "must be a network or an address")
			continue
		}
		trusted = append(trusted, prefix)
	}
	if err := problems.Err("weirhttp"); err != nil {
		return nil, err
	}
	return trusted, nil
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
	return newAddressFinder(o).key, nil
}

// An addressFinder has AddressOptions that are ready for requests: the defaults are set, the header is canonical.
type addressFinder struct{ AddressOptions }

func newAddressFinder(o *AddressOptions) *addressFinder {
	f := new(addressFinder)
	if o != nil {
		f.AddressOptions = *o
	}
	f.Header = http.CanonicalHeaderKey(cmp.Or(f.Header, defaultAddressHeader))
	f.IPv6Bits = cmp.Or(f.IPv6Bits, defaultIPv6Bits)
	f.Trusted = slices.Clone(f.Trusted)
	for i, p := range f.Trusted {
		f.Trusted[i] = unmapped(p)
	}
	return f
}

// unmapped returns p as an IPv4 prefix if p is written as IPv6 (::ffff:0:0/96): the addresses of clients are unmapped
// before they are compared with it.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// key returns the key of a request.
func (f *addressFinder) key(r *http.Request) string {
	text, addr := forwarded.ParseAddress(r.RemoteAddr)
	trusted := f.trusts(addr)
	if !addr.IsValid() {
		trusted = f.TrustUnix && overUnix(r)
	}
	if trusted {
		// Without the text of the address: it is part of a header that can be long, and the
		// key would keep the header in memory.
		return f.format("", f.client(addr, r))
	}
	return f.format(text, addr)
}

// overUnix reports whether the server has accepted the connection on a Unix socket.
func overUnix(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && strings.HasPrefix(local.Network(), "unix")
}

// format returns the key of an address. text is how the address was written, or "" if that must not be the key.
func (f *addressFinder) format(text string, addr netip.Addr) string {
	if addr.Is4() && text != "" && strings.IndexByte(text, ':') < 0 {
		return text // netip accepts a single form of IPv4
	}
	if !addr.IsValid() {
		return unknownAddress
	}
	if nat64.Contains(addr) { // only for the key: Trusted is compared with the address as it is
		whole := addr.As16()
		addr = netip.AddrFrom4([4]byte(whole[12:]))
	}
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	if addr.Is4() || f.IPv6Bits == 128 {
		return string(addr.AppendTo(buf[:0]))
	}
	prefix, err := addr.Prefix(f.IPv6Bits)
	if err != nil { // cannot happen with bits that were validated
		return unknownAddress
	}
	return string(prefix.AppendTo(buf[:0]))
}

// client returns the address of the client whose request a trusted proxy has passed on.
func (f *addressFinder) client(proxy netip.Addr, r *http.Request) netip.Addr {
	return forwarded.Client(proxy, r.Header[f.Header], f.Header == forwardedHeader, f.trusts)
}

// trusts reports whether addr is the address of a trusted proxy.
func (f *addressFinder) trusts(addr netip.Addr) bool {
	for _, p := range f.Trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
