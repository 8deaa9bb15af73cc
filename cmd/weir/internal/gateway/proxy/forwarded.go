package proxy

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir/transport/weirhttp"
)

// A sender is who has sent a request, as the upstream is told.
type sender struct {
	trusted   bool      // the peer is a trusted proxy
	host      string    // that the client has asked for; it can differ from that which the routes match, see canonical
	forwarded [3]string // the values of the X-Forwarded fields: here, so that they are not allocated by themselves
}

// trust says which peers are proxies whose word about the client counts.
type trust struct {
	networks []netip.Prefix
	unix     bool         // all peers of Unix sockets
	header   string       // in which they write the address of their client, canonical
	address  weirhttp.Key // the address of the client
	keys     []string     // the canonical headers that keys of limiters are in
	via      [3][]string  // the values of Via for HTTP/1.0, HTTP/1.1 and HTTP/2, with room for no other; nil: no Via
}

func newTrust(o weirhttp.AddressOptions, via string) (*trust, error) {
	o.Header = cmp.Or(o.Header, xForwardedFor)
	o.IPv6Bits = 128
	address, err := weirhttp.ClientAddress(&o)
	t := &trust{networks: o.Trusted, unix: o.TrustUnix, header: http.CanonicalHeaderKey(o.Header), address: address}
	if via != "" {
		t.via = [3][]string{{"1.0 " + via}, {"1.1 " + via}, {"2.0 " + via}}
	}
	return t, err
}

// trusts reports whether the peer of the connection is a trusted proxy.
func (t *trust) trusts(r *http.Request) bool {
	if len(t.networks) == 0 && !t.unix {
		return false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		return t.unix && local != nil && strings.HasPrefix(local.Network(), "unix")
	}
	addr := peer.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(t.networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// forward sets the X-Forwarded fields of the request for the upstream. What a trusted proxy has written stays, and the
// gateway adds what it knows; what anything else has written goes, in every spelling that an upstream could take for
// such a field.
func (t *trust) forward(p *httputil.ProxyRequest, x *sender, prefix string) {
	in, out := p.In.Header, p.Out.Header
	if x.trusted {
		for _, name := range []string{"Forwarded", xForwardedFor, xForwardedHost, xForwardedProto} {
			if lines := in[name]; lines != nil {
				out[name] = lines
			}
		}
	}
	for name := range out {
		if claims, spelling := t.claims(name); claims && (!x.trusted || spelling) {
			delete(out, name)
		}
	}
	if host, _, err := net.SplitHostPort(p.In.RemoteAddr); err == nil {
		if before := out[xForwardedFor]; len(before) > 0 {
			host = strings.Join(before, ", ") + ", " + host
		}
		x.forwarded[0] = host
		out[xForwardedFor] = x.forwarded[0:1:1]
	}
	if len(out[xForwardedHost]) == 0 {
		x.forwarded[1] = x.host
		out[xForwardedHost] = x.forwarded[1:2:2]
	}
	if len(out[xForwardedProto]) == 0 {
		x.forwarded[2] = "http"
		if p.In.TLS != nil {
			x.forwarded[2] = "https"
		}
		out[xForwardedProto] = x.forwarded[2:3:3]
	}
	if via := t.via[version(p.In)]; via != nil {
		if before := out["Via"]; len(before) > 0 {
			via = append(slices.Clip(before), via...)
		}
		out["Via"] = via
	}
	if prefix != "" {
		out[xForwardedPrefix] = append(slices.Clip(out[xForwardedPrefix]), prefix)
	}
}

// version returns which of the versions of HTTP a request has.
func version(r *http.Request) int {
	switch {
	case r.ProtoMajor == 2:
		return 2
	case r.ProtoMinor == 0:
		return 0
	default:
		return 1
	}
}

// trailers returns the body of a request for the upstream. Some servers add the trailer to the header, so that it claims nothing either
// that the header of the client cannot, and has no second key. The trailer is shared with the request of the client, and complete at
// the end of the body.
func (t *trust) trailers(p *httputil.ProxyRequest, x *sender) io.ReadCloser {
	if p.Out.Trailer == nil || p.Out.Body == nil {
		return p.Out.Body
	}
	b := &trailerBody{p.Out.Body, t, x.trusted, p.Out.Trailer}
	b.removeClaims() // from the announcement
	return b
}

// A trailerBody removes claims from the trailer.
type trailerBody struct {
	io.ReadCloser
	trust   *trust
	trusted bool
	trailer http.Header
}

func (b *trailerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.removeClaims()
	}
	return n, err
}

func (b *trailerBody) removeClaims() {
	for name := range b.trailer {
		claims, spelling := b.trust.claims(name)
		if claims && (!b.trusted || spelling) || slices.Contains(b.trust.keys, name) {
			delete(b.trailer, name)
		}
	}
}

const (
	xForwardedFor    = "X-Forwarded-For"
	xForwardedHost   = "X-Forwarded-Host"
	xForwardedProto  = "X-Forwarded-Proto"
	xForwardedPrefix = "X-Forwarded-Prefix"
)

// claims reports whether a header field says something about the client that only a proxy can know, replaces the path that the
// routes have matched, or could be taken for the header of a key. Servers that turn fields into variables of an environment take X_Forwarded_For for X-Forwarded-For, and Proxy
// for the HTTP proxy of their own requests; misspelt reports whether name is such a spelling, which no proxy writes.
func (t *trust) claims(name string) (claims, misspelt bool) {
	if strings.IndexByte(name, '_') >= 0 {
		misspelt = true
		if name = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")); slices.Contains(t.keys, name) {
			return true, true // a second key, beside the one that the limiter counts
		}
	}
	if name == "" || name[0] != 'X' && name[0] != 'F' && name[0] != 'P' && name[0] != t.header[0] {
		return false, false
	}
	switch name {
	case "Proxy":
		return true, true
	case "Forwarded", "X-Real-Ip", "X-Original-Url", "X-Rewrite-Url", t.header:
		return true, misspelt
	}
	return strings.HasPrefix(name, "X-Forwarded-"), misspelt
}
