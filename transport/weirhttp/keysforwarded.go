package weirhttp

import (
	"net/netip"
	"strings"
)

// parseAddress reads an address with or without a port, in brackets or not, and
// returns it with its part of s. The address is not valid if s is none. An IPv4
// address inside an IPv6 one comes out as IPv4; a zone is dropped, it says nothing
// about a client.
func parseAddress(s string) (text string, addr netip.Addr) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, port, found := strings.Cut(rest, "]")
		if !found || strings.Count(host, ":") < 2 || port != "" && !isPort(port) {
			return "", netip.Addr{}
		}
		text = host
	} else {
		text = s
		if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') { // two are an IPv6 address
			if !isPort(s[i:]) {
				return "", netip.Addr{}
			}
			text = s[:i]
		}
	}
	// Longer than any address: do not even try. The error of netip would quote it.
	if len(text) == 0 || len(text) > 64 {
		return "", netip.Addr{}
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return "", netip.Addr{}
	}
	return text, addr.Unmap().WithZone("")
}

// isPort tells whether s is a colon and a port, which may also be an obfuscated
// one of RFC 7239 or missing.
func isPort(s string) bool {
	if s == "" || s[0] != ':' || len(s) > len(":_")+64 {
		return false
	}
	for _, c := range []byte(s[1:]) {
		if !isTokenByte(c) {
			return false
		}
	}
	return true
}

// elements are the elements of one line of a header, to be read from the last.
type elements struct {
	rest      string   // of a plain list
	nodes     []string // of a Forwarded: the for parameters
	malformed bool     // nothing that comes before what was read can be believed
}

// elementsOf is a plain list, or a Forwarded of RFC 7239.
func elementsOf(line string, forwarded bool) elements {
	if !forwarded {
		return elements{rest: line}
	}
	nodes, ok := parseForwarded(line)
	return elements{nodes: nodes, malformed: !ok}
}

// last takes the last element away. Of a Forwarded it is the for parameter, "" if
// the element has none.
func (e elements) last() (element string, before elements, ok bool) {
	if n := len(e.nodes); n > 0 {
		element, e.nodes = e.nodes[n-1], e.nodes[:n-1]
		return element, e, true
	}
	for e.rest != "" {
		i := strings.LastIndexByte(e.rest, ',')
		element, e.rest = trimSpace(e.rest[i+1:]), e.rest[:max(i, 0)]
		if element != "" { // a list may have empty elements, which mean nothing
			return element, e, true
		}
	}
	return "", e, false
}

// mostNodes is how many elements of a Forwarded line are kept, the last ones.
const mostNodes = 128

// parseForwarded reads a line from its beginning: only so is it known what is in
// quotes. A line with a mistake in it is not believed at all. A client that sends a
// quote too many would else decide how the rest, which a proxy has appended, is
// read.
func parseForwarded(line string) (nodes []string, ok bool) {
	nodes = make([]string, 0, 4)
	for rest := line; ; {
		node, next, found, ok := parseElement(rest)
		if !ok {
			return nil, false
		}
		if found {
			if len(nodes) == mostNodes {
				nodes = append(nodes[:0], nodes[1:]...)
			}
			nodes = append(nodes, node)
		}
		if next == "" {
			return nodes, true
		}
		rest = next[1:]
	}
}

// parseElement reads pairs up to a comma or the end, and returns the value of for.
// found is false if there was nothing to read.
func parseElement(s string) (node, rest string, found, ok bool) {
	seen := false
	for {
		s = trimLeft(s)
		if s == "" || s[0] == ',' {
			return node, s, found, true
		}
		if s[0] == ';' {
			s = s[1:]
			continue
		}
		var name, value string
		if name, value, s, ok = parsePair(s); !ok {
			return "", "", false, false
		}
		found = true
		if strings.EqualFold(name, "for") {
			if seen { // a parameter must not come twice; which one would be believed?
				return "", "", false, false
			}
			node, seen = value, true
		}
		s = trimLeft(s)
		if s != "" && s[0] != ',' && s[0] != ';' {
			return "", "", false, false
		}
	}
}

// parsePair reads name=value, with the value in quotes or not.
func parsePair(s string) (name, value, rest string, ok bool) {
	n := tokenLength(s)
	if n == 0 || n == len(s) || s[n] != '=' {
		return "", "", "", false
	}
	name, s = s[:n], s[n+1:]
	if s != "" && s[0] == '"' {
		value, rest, ok = parseQuoted(s[1:])
		return name, value, rest, ok
	}
	// Not a token by the letter, but seen: a port or brackets without quotes.
	n = 0
	for n < len(s) && (isTokenByte(s[n]) || s[n] == ':' || s[n] == '[' || s[n] == ']') {
		n++
	}
	return name, s[:n], s[n:], n > 0
}

// parseQuoted reads up to the closing quote.
func parseQuoted(s string) (value, rest string, ok bool) {
	var unescaped []byte // nil as long as there was no backslash
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			if unescaped != nil {
				return string(unescaped), s[i+1:], true
			}
			return s[:i], s[i+1:], true
		case c == '\\':
			if unescaped == nil {
				unescaped = append(make([]byte, 0, 64), s[:i]...)
			}
			if i++; i == len(s) {
				return "", "", false
			}
			unescaped = append(unescaped, s[i])
		case unescaped != nil:
			unescaped = append(unescaped, c)
		}
	}
	return "", "", false
}

func tokenLength(s string) int {
	n := 0
	for n < len(s) && isTokenByte(s[n]) {
		n++
	}
	return n
}

// isToken tells whether s is a token of RFC 9110, as names of headers are.
func isToken(s string) bool { return s != "" && tokenLength(s) == len(s) }

func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
	}
}

func trimLeft(s string) string  { return strings.TrimLeft(s, " \t") }
func trimSpace(s string) string { return strings.Trim(s, " \t") }
