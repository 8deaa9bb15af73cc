package plan

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Grammar describes the text of a request.
const Grammar = `METHOD TARGET [@ADDRESS] [NAME=VALUE]...
  METHOD      GET, POST, ...
  TARGET      a path such as /orders?page=2, or a URL such as https://api.example.com/orders
  @ADDRESS    the address that the connection comes from, or @unix; @127.0.0.1 unless given
  NAME=VALUE  a header, such as X-Api-Key=abc or Host=api.example.com; with blanks: "User-Agent=a b"`

// ParseRequest reads the text of a request, see [Grammar]. Package net/http reads it, as it reads that of a client.
func ParseRequest(text string) (*http.Request, error) {
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return nil, errors.New("a request must have no line breaks or other control characters")
	}
	words := csv.NewReader(strings.NewReader(strings.TrimSpace(text)))
	words.Comma, words.TrimLeadingSpace = ' ', true
	all, err := words.Read()
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case len(all) < 2:
		return nil, errors.New("a request is a method and a path, such as GET /orders")
	}
	from, head := "127.0.0.1", all[0]+" "+all[1]+" HTTP/1.1\r\n"
	for _, word := range all[2:] {
		address, is := strings.CutPrefix(word, "@")
		name, value, found := strings.Cut(word, "=")
		switch {
		case is:
			from = address
		case found:
			head += name + ": " + value + "\r\n"
		default:
			return nil, fmt.Errorf("%q: must be a header such as X-Api-Key=abc, or an address such as @192.0.2.1", word)
		}
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(head + "\r\n")))
	if err != nil {
		return nil, err
	}
	if r.Host == "" {
		r.Host = "localhost"
	}
	return withAddress(r, from)
}

// withAddress returns the request with the peer of the connection.
func withAddress(r *http.Request, address string) (*http.Request, error) {
	if address == "unix" {
		r.RemoteAddr = "@"
		return r.WithContext(context.WithValue(context.Background(), http.LocalAddrContextKey, &net.UnixAddr{Net: "unix"})), nil
	}
	addr, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return nil, fmt.Errorf("@%s: must be an IP address, such as @192.0.2.1 or @2001:db8::1, or @unix", address)
	}
	r.RemoteAddr = netip.AddrPortFrom(addr, 0).String()
	return r, nil
}
