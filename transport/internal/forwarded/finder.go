package forwarded

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/validate"
)

// unknownAddress is the key of all requests whose connection has no IP address, such as one over a Unix socket.
const unknownAddress = "unknown"

const defaultIPv6Bits = 64

// nat64 is the prefix of IPv4 addresses that a translator has embedded, RFC 6052.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Options are the AddressOptions of a transport, which documents them.
type Options struct {
	Trusted   []netip.Prefix
	Header    string
	IPv6Bits  int
	TrustUnix bool
}

// Validate returns a [weir.OptionsError] of pkg with everything that is wrong with o, or nil. A nil o is valid.
func (o *Options) Validate(pkg string) error {
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
	if !IsToken(o.Header) && o.Header != "" {
		problems.Add("Header", o.Header, "must be the name of a header")
	}
	return problems.Err(pkg)
}

// ParseTrusted returns the prefixes of networks such as "10.0.0.0/8" and of single addresses. The error is a
// [weir.OptionsError] of pkg with every text that is neither.
func ParseTrusted(pkg string, networks []string) ([]netip.Prefix, error) {
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
	if err := problems.Err(pkg); err != nil {
		return nil, err
	}
	return trusted, nil
}

// A Finder finds the address of the client of a request, and makes a key of it.
type Finder struct {
	options Options
	rfc7239 bool
}

// NewFinder returns a Finder. If o is nil, the defaults apply. canonical is the form of the names of headers in the requests
// of the transport.
func NewFinder(o *Options, canonical func(header string) string) *Finder {
	f := new(Finder)
	if o != nil {
		f.options = *o
	}
	f.options.IPv6Bits = cmp.Or(f.options.IPv6Bits, defaultIPv6Bits)
	f.options.Header = canonical(cmp.Or(f.options.Header, "X-Forwarded-For"))
	f.rfc7239 = strings.EqualFold(f.options.Header, "Forwarded")
	f.options.Trusted = slices.Clone(f.options.Trusted)
	for i, p := range f.options.Trusted {
		f.options.Trusted[i] = unmapped(p)
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

// Find returns the key of a request from a peer, which is not valid if it is no IP address; unix says that it is a Unix
// socket. text is how the address was written, or "". lines returns the lines of a header.
func (f *Finder) Find(text string, peer netip.Addr, unix bool, lines func(header string) []string) string {
	trusted := f.trusts(peer) || unix && f.options.TrustUnix
	if !trusted {
		return f.key(text, peer)
	}
	// Without the text of the address: it is part of a header that can be long, and the key would keep the header in memory.
	return f.key("", Client(peer, lines(f.options.Header), f.rfc7239, f.trusts))
}

// trusts reports whether addr is the address of a trusted proxy.
func (f *Finder) trusts(addr netip.Addr) bool {
	for _, p := range f.options.Trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// key returns the key of an address. text is how the address was written, or "" if that must not be the key.
func (f *Finder) key(text string, addr netip.Addr) string {
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
	if addr.Is4() || f.options.IPv6Bits == 128 {
		return string(addr.AppendTo(buf[:0]))
	}
	prefix, err := addr.Prefix(f.options.IPv6Bits)
	if err != nil { // cannot happen with bits that were validated
		return unknownAddress
	}
	return string(prefix.AppendTo(buf[:0]))
}
