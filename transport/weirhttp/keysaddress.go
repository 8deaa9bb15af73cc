package weirhttp

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// AddressOptions say how [ClientAddress] finds a client. The zero AddressOptions
// go by the address that the connection comes from, IPv6 by /64.
type AddressOptions struct {
	// Trusted are the proxies in front of the server. Only what they say about the
	// addresses behind them is believed. Without any the header is not read, unless
	// TrustUnix is set.
	// [ParseTrusted] makes them of text.
	Trusted []netip.Prefix `json:"trusted,omitempty" yaml:"trusted,omitempty"`
	// Header is where the proxies write it; "" is X-Forwarded-For. "Forwarded" is
	// read as RFC 7239 says, any other as a list of addresses. Name the one that
	// your proxies set or overwrite: they pass on the others as the client sent them.
	Header string `json:"header,omitempty" yaml:"header,omitempty"`
	// IPv6Bits is how much of an IPv6 address is the key; 0 is 64, which is what
	// one customer gets at least, and can choose the rest from. 128 is all of it.
	IPv6Bits int `json:"ipv6_bits,omitempty" yaml:"ipv6_bits,omitempty"`
	// TrustUnix trusts every peer of a Unix socket like a proxy in Trusted: a server
	// behind nginx on the same machine, for example. If false, all requests over Unix
	// sockets have the key "unknown".
	TrustUnix bool `json:"trust_unix,omitempty" yaml:"trust_unix,omitempty"`
}

const (
	defaultIPv6Bits      = 64
	defaultAddressHeader = "X-Forwarded-For"
	forwardedHeader      = "Forwarded"
)

// longestForwarded is how much of the header is read, from its end: it bounds the work
// that a client inside a trusted network can cause.
const longestForwarded = 16 << 10

// nat64 are IPv4 addresses as a translator writes them, RFC 6052.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// unknownAddress is the key of all requests whose connection has no IP address,
// as one over a Unix socket has none.
const unknownAddress = "unknown"

// Validate returns every problem in one error, or nil.
func (o *AddressOptions) Validate() error {
	if o == nil {
		return nil
	}
	var problems []string
	for i, p := range o.Trusted {
		if !p.IsValid() {
			problems = append(problems, fmt.Sprintf("Trusted[%d] is no valid prefix", i))
		}
	}
	if o.IPv6Bits < 0 || o.IPv6Bits > 128 {
		problems = append(problems, fmt.Sprintf("IPv6Bits is %d, must be from 1 to 128, or 0 for %d", o.IPv6Bits, defaultIPv6Bits))
	}
	if !isToken(o.Header) && o.Header != "" {
		problems = append(problems, fmt.Sprintf("Header is %q, must be the name of a header", o.Header))
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New("weirhttp: invalid AddressOptions: " + strings.Join(problems, "; "))
}

// ParseTrusted makes [AddressOptions.Trusted] of networks such as "10.0.0.0/8" and
// single addresses. The error names every one that is neither.
func ParseTrusted(networks ...string) ([]netip.Prefix, error) {
	var trusted []netip.Prefix
	var problems []string
	for _, text := range networks {
		prefix, err := netip.ParsePrefix(text)
		if addr, single := netip.ParseAddr(text); err != nil && single == nil {
			addr = addr.Unmap().WithZone("")
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("%q", text))
			continue
		}
		trusted = append(trusted, prefix)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("weirhttp: neither a network nor an address: %s", strings.Join(problems, ", "))
	}
	return trusted, nil
}

// ClientAddress is the address of the client: "192.0.2.1", or "2001:db8::/64" for
// an IPv6 one. A nil o means the defaults. It panics if o is not valid; where it
// comes from outside the program, use [NewClientAddress].
//
// It is the address that the connection comes from. If that is a trusted proxy,
// the header is read from its end, over all its lines: every proxy appends what it
// saw, so the last address that is not a trusted proxy's is the client's, and what
// stands before it may be made up. Reading
// stops at something that is not an address, after 64 addresses and after 16 KiB; the
// last proxy then counts as the client. An IPv4 address inside an IPv6 one (::ffff:0:0/96, 64:ff9b::/96)
// counts as IPv4. Connections without an address, such as those over a Unix
// socket, share the key "unknown"; see [AddressOptions.TrustUnix].
func ClientAddress(o *AddressOptions) Key {
	key, err := NewClientAddress(o)
	if err != nil {
		panic(err)
	}
	return key
}

// NewClientAddress is [ClientAddress] for options that may be wrong.
func NewClientAddress(o *AddressOptions) (Key, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return newAddressFinder(o).key, nil
}

// An addressFinder is AddressOptions, ready for use.
type addressFinder struct {
	trusted   []netip.Prefix
	header    string // canonical
	ipv6Bits  int
	trustUnix bool
}

func newAddressFinder(o *AddressOptions) *addressFinder {
	f := &addressFinder{header: defaultAddressHeader, ipv6Bits: defaultIPv6Bits}
	if o == nil {
		return f
	}
	for _, p := range o.Trusted {
		f.trusted = append(f.trusted, unmapped(p))
	}
	f.trustUnix = o.TrustUnix
	if o.Header != "" {
		f.header = http.CanonicalHeaderKey(o.Header)
	}
	if o.IPv6Bits != 0 {
		f.ipv6Bits = o.IPv6Bits
	}
	return f
}

// unmapped makes an IPv4 prefix of one that is written as IPv6: the addresses it is
// compared with are unmapped.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

func (f *addressFinder) key(r *http.Request) string {
	text, addr := parseAddress(r.RemoteAddr)
	if !addr.IsValid() {
		if f.trustUnix && overUnix(r) {
			return f.format("", f.behind(addr, r.Header[f.header]))
		}
		return unknownAddress
	}
	if len(f.trusted) > 0 && f.trusts(addr) {
		// The address may be part of a long header, which a key must not keep in memory.
		return f.format("", f.behind(addr, r.Header[f.header]))
	}
	return f.format(text, addr)
}

// overUnix reports whether the server has accepted the connection on a Unix socket.
func overUnix(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && strings.HasPrefix(local.Network(), "unix")
}

// format makes the key of an address. text is how it was written, if that may be
// the key.
func (f *addressFinder) format(text string, addr netip.Addr) string {
	if addr.Is4() && text != "" && strings.IndexByte(text, ':') < 0 {
		return text // netip takes IPv4 in one form only
	}
	if !addr.IsValid() {
		return unknownAddress
	}
	if nat64.Contains(addr) { // for the key only: whom to trust is said as the connection has it
		whole := addr.As16()
		addr = netip.AddrFrom4([4]byte(whole[12:]))
	}
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	if addr.Is4() || f.ipv6Bits == 128 {
		return string(addr.AppendTo(buf[:0]))
	}
	prefix, err := addr.Prefix(f.ipv6Bits)
	if err != nil { // not with bits that were validated
		return unknownAddress
	}
	return string(prefix.AppendTo(buf[:0]))
}

func (f *addressFinder) trusts(addr netip.Addr) bool {
	for _, p := range f.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// behind returns whom the trusted proxy speaks for, by the lines of the header.
func (f *addressFinder) behind(proxy netip.Addr, lines []string) netip.Addr {
	// Headers can be long, and a client inside a trusted network can send what it
	// likes: nobody has that many proxies.
	hops, most := 64, longestForwarded
	for _, line := range slices.Backward(lines) {
		cut := len(line) > most
		if cut && f.header == forwardedHeader {
			return proxy // it is read from its beginning only
		}
		if cut {
			line = line[len(line)-most:]
		}
		most -= len(line)
		left := elementsOf(line, f.header == forwardedHeader)
		if left.malformed {
			return proxy
		}
		for element, before, ok := left.last(); ok; element, before, ok = before.last() {
			if cut && before.rest == "" {
				return proxy // it may be the end of something longer
			}
			_, addr := parseAddress(element)
			if hops--; !addr.IsValid() || hops < 0 {
				return proxy
			}
			if !f.trusts(addr) {
				return addr
			}
			proxy = addr
		}
		if cut {
			return proxy
		}
	}
	return proxy
}
