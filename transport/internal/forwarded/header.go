package forwarded

import "strings"

// elements are the elements of one line of a header. They are read one at a time, from the last to the first.
type elements struct {
	unread    string   // of a plain list: the elements that last has not returned yet
	nodes     []string // of a Forwarded: the for parameters
	malformed bool     // no element is used
}

// elementsOf returns the elements of a plain list, or of a Forwarded of RFC 7239.
func elementsOf(line string, forwarded bool) elements {
	if !forwarded {
		return elements{unread: line}
	}
	nodes, ok := parseForwarded(line)
	return elements{nodes: nodes, malformed: !ok}
}

// last returns the last element and the elements before it. An element of a Forwarded is its for parameter, "" if it
// has none.
func (e elements) last() (element string, before elements, ok bool) {
	if n := len(e.nodes); n > 0 {
		element, e.nodes = e.nodes[n-1], e.nodes[:n-1]
		return element, e, true
	}
	for e.unread != "" {
		i := strings.LastIndexByte(e.unread, ',')
		element, e.unread = trimSpace(e.unread[i+1:]), e.unread[:max(i, 0)]
		if element != "" { // a list can have empty elements, which mean nothing
			return element, e, true
		}
	}
	return "", e, false
}

// maxNodes is how many elements of a Forwarded line are kept. If there are more, the first are dropped.
const maxNodes = 128

// parseForwarded reads a line from its beginning, because a quote can only be recognized from there. A line with a
// mistake is refused as a whole: otherwise a client that sends one quote too many would decide how the elements that a
// proxy has appended are read.
func parseForwarded(line string) (nodes []string, ok bool) {
	nodes = make([]string, 0, 4)
	for rest := line; ; {
		node, next, found, ok := parseElement(rest)
		if !ok {
			return nil, false
		}
		if found {
			if len(nodes) == maxNodes {
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

// parseElement reads pairs up to a comma or the end, and returns the value of for. found is false if there is no pair.
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
			if seen { // RFC 7239 forbids a parameter that occurs twice
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
	// Proxies also send ports and brackets without quotes, which RFC 7239 does not allow.
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

// tokenLength returns the length of the token of RFC 9110 at the beginning of s.
func tokenLength(s string) int {
	n := 0
	for n < len(s) && isTokenByte(s[n]) {
		n++
	}
	return n
}

// IsToken reports whether s is a token of RFC 9110, as names of headers are.
func IsToken(s string) bool { return s != "" && tokenLength(s) == len(s) }

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
