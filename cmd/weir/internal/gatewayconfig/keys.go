package gatewayconfig

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/transport/weirhttp"
)

// maxKeyParts bounds what a request costs.
const maxKeyParts = 64

// Validate checks the fields that a file sets.
func (k Key) Validate() error {
	var p validate.Problems
	if k.Header != "" && !isToken(k.Header) {
		p.Add("Header", k.Header, "must be the name of a header")
	}
	if k.PathValue != "" && !isIdentifier(k.PathValue) {
		p.Add("PathValue", k.PathValue, "must be the name of a wildcard, without the braces")
	}
	if k.Header == "" && k.PathValue == "" && k.Address == nil && k.JWTClaim == nil && k.Route == nil && len(k.Composite) == 0 {
		p.Add("", nil, "must not be empty")
	}
	if n := len(k.Composite); k.Composite != nil && (n < 2 || n > maxKeyParts) {
		p.Add("Composite", nil, "must have from 2 to %d keys", maxKeyParts)
	}
	return p.Err("gateway")
}

// kind returns the name of the field that is set.
func (k Key) kind() string {
	switch {
	case k.Address != nil:
		return "address"
	case k.Header != "":
		return "header"
	case k.PathValue != "":
		return "path_value"
	case k.JWTClaim != nil:
		return "jwt_claim"
	case k.Route != nil:
		return "route"
	default:
		return "composite"
	}
}

// HeaderName returns the name of the header that the key is in, or "".
func (k Key) HeaderName() string {
	if k.JWTClaim != nil {
		return cmp.Or(k.JWTClaim.Header, DefaultTokenHeader)
	}
	return k.Header
}

// usedKeys returns the keys that the key of that name is made of, itself included, by name.
func (g Gateway) usedKeys(name string) map[string]Key {
	used := make(map[string]Key)
	for _, name := range append([]string{name}, g.Keys[name].Composite...) {
		if k, ok := g.Keys[name]; ok {
			used[name] = k
		}
	}
	return used
}

// A keySource is what a key function is made from.
type keySource struct {
	Keys    map[string]Key
	Trusted []Network // if one of the keys is an address
	Header  string
}

func (g Gateway) keySource(name string) keySource {
	s := keySource{Keys: g.usedKeys(name)}
	for _, k := range s.Keys {
		if k.Address != nil {
			s.Trusted, s.Header = g.TrustedProxies, g.ClientAddressHeader
		}
	}
	return s
}

// NewKey returns the key of that name as a function of the request. If it is the claim of a token that is verified,
// NewKey reads the file with the keys, and the function reads it again when it has changed.
func (g Gateway) NewKey(name string) (weirhttp.Key, error) {
	k := g.Keys[name]
	switch k.kind() {
	case "address":
		return g.addressKey(k.Address.IPv6Bits)
	case "header":
		return weirhttp.Header(k.Header), nil
	case "path_value":
		return weirhttp.Subject(func(r *http.Request) string { return r.PathValue(k.PathValue) }), nil
	case "route":
		return weirhttp.Route(), nil
	case "jwt_claim":
		find, err := k.JWTClaim.finder()
		if err != nil {
			return nil, err
		}
		return weirhttp.Subject(find), nil
	}
	parts := make([]weirhttp.Key, len(k.Composite))
	for i, part := range k.Composite {
		made, err := g.NewKey(part)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", part, err)
		}
		parts[i] = made
	}
	return weirhttp.Composite(parts...), nil
}

func (g Gateway) addressKey(ipv6Bits int) (weirhttp.Key, error) {
	o := g.AddressOptions()
	o.IPv6Bits = ipv6Bits
	return weirhttp.ClientAddress(&o)
}

// AddressOptions returns the options of [weirhttp.ClientAddress] that find the address of a client.
func (g Gateway) AddressOptions() weirhttp.AddressOptions {
	o := weirhttp.AddressOptions{Header: g.ClientAddressHeader}
	for _, n := range g.TrustedProxies {
		if n.IsValid() {
			o.Trusted = append(o.Trusted, n.Prefix)
		} else {
			o.TrustUnix = true
		}
	}
	return o
}

// byContext returns the key function for a limiter of the file.
func byContext(key weirhttp.Key) func(ctx context.Context) string {
	return func(ctx context.Context) string {
		if r := weirhttp.RequestFrom(ctx); r != nil {
			return key(r)
		}
		return ""
	}
}
