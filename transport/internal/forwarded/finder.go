package forwarded

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/validate"
)

// Header is the name of the header of RFC 7239, in canonical form.
const Header = "Forwarded"

// UnknownAddress is the key of all requests whose connection has no IP address, such as one over a Unix socket.
const UnknownAddress = "unknown"

const defaultIPv6Bits = 64

// nat64 is the prefix of IPv4 addresses that a translator has embedded, RFC 6052.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Validate adds to problems what is wrong with the fields Trusted, IPv6Bits and Header of the options of a [Finder].
func Validate(problems *validate.Problems, trusted []netip.Prefix, ipv6Bits int, header string) {
	for i, p := range trusted {
		if !p.IsValid() {
			problems.Add(fmt.Sprintf("Trusted[%d]", i), nil, "must be a valid prefix")
		}
	}
	if ipv6Bits < 0 || ipv6Bits > 128 {
		problems.Add("IPv6Bits", ipv6Bits, "must be from 1 to 128, or 0 for %d", defaultIPv6Bits)
	}
	if !IsToken(header) && header != "" {
		problems.Add("Header", header, "must be the name of a header")
	}
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

// A Finder makes keys of addresses, and knows the trusted proxies.
type Finder struct {
	trusted  []netip.Prefix
	ipv6Bits int
}

// NewFinder returns a Finder. If ipv6Bits is 0, it is 64.
func NewFinder(trusted []netip.Prefix, ipv6Bits int) *Finder {
	f := &Finder{trusted: slices.Clone(trusted), ipv6Bits: cmp.Or(ipv6Bits, defaultIPv6Bits)}
	for i, p := range f.trusted {
		f.trusted[i] = unmapped(p)
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

// Trusts reports whether addr is the address of a trusted proxy.
func (f *Finder) Trusts(addr netip.Addr) bool {
	for _, p := range f.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Client returns the address of the client whose request a trusted proxy has passed on; see the function Client.
func (f *Finder) Client(proxy netip.Addr, lines []string, rfc7239 bool) netip.Addr {
	return Client(proxy, lines, rfc7239, f.Trusts)
}

// Key returns the key of an address. text is how the address was written, or "" if that must not be the key.
func (f *Finder) Key(text string, addr netip.Addr) string {
	if addr.Is4() && text != "" && strings.IndexByte(text, ':') < 0 {
		return text // netip accepts a single form of IPv4
	}
	if !addr.IsValid() {
		return UnknownAddress
	}
	if nat64.Contains(addr) { // only for the key: Trusted is compared with the address as it is
		whole := addr.As16()
		addr = netip.AddrFrom4([4]byte(whole[12:]))
	}
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	if addr.Is4() || f.ipv6Bits == 128 {
		return string(addr.AppendTo(buf[:0]))
	}
	prefix, err := addr.Prefix(f.ipv6Bits)
	if err != nil { // cannot happen with bits that were validated
		return UnknownAddress
	}
	return string(prefix.AppendTo(buf[:0]))
}
