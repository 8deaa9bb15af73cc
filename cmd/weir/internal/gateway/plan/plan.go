// Package plan says which way a request would go through the gateway that a file describes, without a gateway that runs:
// which route it matches, which policies it passes with which keys, and where it is sent.
package plan

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// ErrNoGateway is the error of a file without the gateway's part.
var ErrNoGateway = errors.New("the file has no gateway")

// A planner tells the way of requests through the gateway of a file.
type planner struct {
	file    *reload.File
	gateway gatewayconfig.Gateway
	table   *proxy.Table
	address weirhttp.Key
}

func newPlanner(f *reload.File) (*planner, error) {
	g, ok := reload.SectionOf[gatewayconfig.Gateway](f, gatewayconfig.Field)
	if !ok {
		return nil, ErrNoGateway
	}
	g = g.WithDefaults()
	addresses := g.AddressOptions()
	o := &proxy.TableOptions{Address: addresses}
	for _, r := range g.Routes {
		o.Routes = append(o.Routes, proxy.Route{Match: r.Match, StripPrefix: r.StripPrefix})
	}
	table, err := proxy.NewTable(o)
	if err != nil {
		return nil, err
	}
	addresses.IPv6Bits = 128
	address, err := weirhttp.ClientAddress(&addresses)
	return &planner{file: f, gateway: g, table: table, address: address}, err
}

// Write writes the way of r through the gateway of a file, in words. r is not sent, and nothing is opened but the files with the keys of
// tokens.
func Write(w io.Writer, f *reload.File, r *http.Request) error {
	p, err := newPlanner(f)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s %s%s from %s", r.Method, r.Host, r.URL.RequestURI(), p.address(r))
	d := p.table.Decide(r)
	if d.Route() < 0 {
		line("  is answered by the gateway with %d %s: %v", d.Status, http.StatusText(d.Status), d.Reason)
		_, err := w.Write(b.Bytes())
		return err
	}
	route := p.gateway.Routes[d.Route()]
	line("  matches routes[%d], %s%s", d.Route(), route.Match, wildcards(d.Request, route.Pattern().Wildcards()))
	policies := p.gateway.PoliciesOf(route)
	if len(policies) == 0 {
		line("  passes no policy")
	}
	for i, name := range policies {
		policy := p.gateway.Policies[name]
		line("  %d. policy %s%s", i+1, name, fileconfig.When(!route.Exempt && i < len(p.gateway.Global), ", of all routes"))
		for _, words := range policy.Words(p.file) {
			line("     %s", words)
		}
		fileconfig.Members(p.file, policy.Limiter, func(l reload.LimiterInfo) {
			if l.Partitioned {
				line("     %s", p.keyWords(l.Key, d.Request))
			}
		})
	}
	if route.Pipeline != "" {
		line("  then runs through the pipeline")
		if err := p.writePipeline(line, route.Pipeline, d.Request); err != nil {
			return err
		}
	}
	upstream := p.gateway.Upstreams[route.Upstream]
	to, u := upstream.Addresses[0], d.URL()
	sent, host := *u, to.Host
	sent.Scheme, sent.Host = to.Scheme, to.Host
	sent.Path, sent.RawPath = to.Path+u.Path, to.EscapedPath()+u.EscapedPath()
	if upstream.KeepHost {
		host = r.Host
	}
	line("  goes to %s as %s %s, with the Host %s%s", route.Upstream, r.Method, sent.String(), host, others(len(upstream.Addresses)-1))
	if words := upstream.HealthWords(); words != "" {
		line("  %s", words)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// writePipeline says what the strategies of a pipeline are, which keys their limiters have, and which of them do not send the request
// again.
func (p *planner) writePipeline(line func(format string, args ...any), pipeline string, r *http.Request) error {
	var words bytes.Buffer
	if err := p.file.Explain(&words, pipeline); err != nil {
		return err
	}
	for text := range strings.Lines(words.String()) {
		line("    %s", strings.TrimSuffix(text, "\n"))
	}
	strategies := gatewayconfig.Steps(p.file, pipeline)
	for _, s := range strategies {
		each := func(l reload.LimiterInfo) {
			if l.Partitioned {
				line("    of %s, %s", l.Name, p.keyWords(l.Key, r))
			}
		}
		if each(s.Limiter); !s.Limiter.Partitioned {
			for _, name := range s.Limiter.Members {
				fileconfig.Members(p.file, name, each)
			}
		}
	}
	has := func(kind string) bool {
		return slices.ContainsFunc(strategies, func(s gatewayconfig.Step) bool { return s.Kind == kind })
	}
	switch {
	case (has("retry") || has("hedging")) && !proxy.Repeatable(r):
		line("  is sent once: a %s without an Idempotency-Key is not repeated", r.Method)
	case has("hedging") && !gatewayconfig.Safe(r.Method):
		line("  is not hedged: a %s is never sent twice at once", r.Method)
	}
	return nil
}

// keyWords says which limiter of a partitioned limiter decides.
func (p *planner) keyWords(name string, r *http.Request) string {
	key, err := p.gateway.NewKey(name)
	if err != nil {
		return fmt.Sprintf("the key %s is not known here: %v", name, err)
	}
	value := key(r)
	if value == "" {
		return fmt.Sprintf("the key %s is empty: all requests without it share a limiter", name)
	}
	var empty []string
	for _, part := range p.gateway.Keys[name].Composite {
		if key, err := p.gateway.NewKey(part); err == nil && key(r) == "" {
			empty = append(empty, part)
		}
	}
	return fmt.Sprintf("the key %s is %q", name, value) + fileconfig.When(empty != nil, ", in which "+strings.Join(empty, " and ")+" is empty")
}

// wildcards says what stands in the path for the wildcards of the route.
func wildcards(r *http.Request, names []string) string {
	words := make([]string, len(names))
	for i, name := range names {
		words[i] = name + " is " + strconv.Quote(r.PathValue(name))
	}
	return fileconfig.When(names != nil, ": "+strings.Join(words, ", "))
}

// others says how many other addresses there are.
func others(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", or to its other address"
	default:
		return fmt.Sprintf(", or to one of its %d other addresses", n)
	}
}

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
