package plan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Grammar describes the text of a request.
const Grammar = `METHOD TARGET [@ADDRESS] [NAME=VALUE]...
  METHOD      GET, POST, ...
  TARGET      a path such as /orders?page=2, or a URL such as https://api.example.com/orders
  @ADDRESS    the address that the connection comes from, or @unix; @127.0.0.1 unless given
  NAME=VALUE  a header, such as X-Api-Key=abc or Host=api.example.com; quote a value with blanks: User-Agent='a b'`

// ParseRequest reads the text of a request, see [Grammar].
func ParseRequest(text string) (*http.Request, error) {
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	if len(words) < 2 {
		return nil, errors.New("a request is a method and a path, such as GET /orders")
	}
	r, err := newRequest(words[0], words[1])
	if err != nil {
		return nil, err
	}
	from := false
	for _, word := range words[2:] {
		if address, is := strings.CutPrefix(word, "@"); is {
			if from {
				return nil, fmt.Errorf("@%s: there is an address already", address)
			}
			from = true
			err = setAddress(&r, address)
		} else {
			err = setHeader(r, word)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// newRequest returns a request to the target from the loopback address.
func newRequest(method, target string) (*http.Request, error) {
	if strings.ToUpper(method) != method || strings.ContainsAny(method, "/=@:") {
		return nil, fmt.Errorf("%q: a request begins with a method in capital letters, such as GET", method)
	}
	u, err := url.ParseRequestURI(target)
	switch {
	case err != nil || target[0] != '/' && u.Host == "":
		return nil, fmt.Errorf("%q: after the method stands a path such as /orders, or a URL such as https://api.example.com/orders", target)
	case target[0] != '/' && u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q: the URL of a request begins with http:// or https://", target)
	}
	if target[0] == '/' { // also //a, which ParseRequestURI takes for a host
		path, query, _ := strings.Cut(target, "?")
		if u, err = url.Parse("http://host" + path); err != nil {
			return nil, fmt.Errorf("%q: %w", target, errors.Unwrap(err))
		}
		u.Scheme, u.Host, u.RawQuery = "", "", query
	}
	r, err := http.NewRequestWithContext(context.Background(), method, "/", nil)
	if err != nil {
		return nil, fmt.Errorf("%q is no method", method)
	}
	r.Host, r.RemoteAddr, r.RequestURI = "localhost", "127.0.0.1:0", target
	if u.Host != "" {
		r.Host = u.Host
	}
	r.URL = u
	r.URL.Scheme, r.URL.Host = "", ""
	return r, nil
}

// setAddress sets the peer of the connection.
func setAddress(r **http.Request, address string) error {
	if address == "unix" {
		*r = (*r).WithContext(context.WithValue((*r).Context(), http.LocalAddrContextKey, &net.UnixAddr{Net: "unix"}))
		(*r).RemoteAddr = "@"
		return nil
	}
	addr, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return fmt.Errorf("@%s: must be an IP address, such as @192.0.2.1 or @2001:db8::1, or @unix", address)
	}
	(*r).RemoteAddr = netip.AddrPortFrom(addr, 0).String()
	return nil
}

func setHeader(r *http.Request, word string) error {
	name, value, found := strings.Cut(word, "=")
	switch {
	case !found:
		return fmt.Errorf("%q: must be a header such as X-Api-Key=abc, or an address such as @192.0.2.1", word)
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) }):
		return fmt.Errorf("%q: %q cannot be the name of a header", word, name)
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return fmt.Errorf("the header %s: a value cannot have line breaks or other control characters", name)
	case strings.EqualFold(name, "Host"):
		r.Host = value
	default:
		r.Header.Add(name, value)
	}
	return nil
}

// split splits a text at blanks, except between quotes, which it removes.
func split(text string) (words []string, err error) {
	var word strings.Builder
	quote, began, inWord := rune(0), 0, false
	position := 0
	for _, c := range text {
		position++
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '"' || c == '\'':
			quote, began, inWord = c, position, true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c at character %d is not closed", quote, began)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
