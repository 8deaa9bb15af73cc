// Package forwarded finds the client of a request in the header that trusted proxies have written: in a list of
// addresses, such as X-Forwarded-For, or in a Forwarded of RFC 7239. A [Finder] makes a key of its address.
package forwarded

import (
	"net/netip"
	"slices"
	"strings"
)

// A client inside a trusted network can send long headers. These bounds apply to all lines of the header, from its end.
const (
	maxBytes = 16 << 10
	maxHops  = 64
)

// Client returns the address of the client that connected to a trusted proxy. It reads the lines of the header from the
// end, because every proxy appends the address that it sees: the last address that is not trusted is the client's. If
// what it reads is not an address, the last proxy before it counts as the client.
func Client(proxy netip.Addr, lines []string, rfc7239 bool, trusted func(netip.Addr) bool) netip.Addr {
	hops, bytes := maxHops, maxBytes
	for _, line := range slices.Backward(lines) {
		truncated := len(line) > bytes
		if truncated && rfc7239 {
			return proxy // a Forwarded line can only be parsed from its beginning
		}
		if truncated {
			line = line[len(line)-bytes:]
		}
		bytes -= len(line)
		all := elementsOf(line, rfc7239)
		if all.malformed {
			return proxy
		}
		for element, before, ok := all.last(); ok; element, before, ok = before.last() {
			if truncated && before.unread == "" {
				return proxy // the element may be the end of a longer one
			}
			_, addr := ParseAddress(element)
			if hops--; !addr.IsValid() || hops < 0 {
				return proxy
			}
			if !trusted(addr) {
				return addr
			}
			proxy = addr
		}
		if truncated {
			return proxy
		}
	}
	return proxy
}

// ParseAddress parses an address with or without a port, with or without brackets. text is the part of s that is the
// address itself. If s is not an address, addr is not valid. An IPv4 address inside an IPv6 address becomes IPv4, and a
// zone is dropped.
func ParseAddress(s string) (text string, addr netip.Addr) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, port, found := strings.Cut(rest, "]")
		if !found || strings.Count(host, ":") < 2 || port != "" && !isPort(port) {
			return "", netip.Addr{}
		}
		text = host
	} else {
		text = s
		if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') { // two colons are an IPv6 address
			if !isPort(s[i:]) {
				return "", netip.Addr{}
			}
			text = s[:i]
		}
	}
	// The error of netip quotes the text, so do not parse one that is longer than any address.
	if len(text) == 0 || len(text) > 64 {
		return "", netip.Addr{}
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return "", netip.Addr{}
	}
	return text, addr.Unmap().WithZone("")
}

// isPort reports whether s is a colon and a port. The port can be an obfuscated one of RFC 7239, or empty.
func isPort(s string) bool {
	return s != "" && s[0] == ':' && len(s) <= len(":_")+64 && tokenLength(s[1:]) == len(s[1:])
}
