package gatewayconfig

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/transport/weirhttp"
)

// A Key is how a partitioned limiter finds the key of a request. It has exactly one of its fields. All requests without
// what the key is made of, such as the header, have the key "" and share a limiter.
type Key struct {
	_         struct{}    `reload:"oneof=key"`
	Address   *AddressKey `yaml:"address,omitempty" doc:"The address of the client, as trusted_proxies and client_address_header find it."`
	Header    string      `yaml:"header,omitempty" doc:"The value of this request header. Something before the gateway should check it: a client that can send any value gets a new limiter with each."`
	PathValue string      `yaml:"path_value,omitempty" doc:"The part of the path that matches the wildcard of this name in the pattern of the route."`
	JWTClaim  *JWTClaim   `yaml:"jwt_claim,omitempty" doc:"A claim of a JSON Web Token, such as sub."`
	Route     *RouteKey   `yaml:"route,omitempty" doc:"The pattern of the route: all requests of a route have one key."`
	Composite []string    `yaml:"composite,omitempty" reload:"in=keys" doc:"Other keys, by name, which are not composite: requests have the same key if they agree in all of them."`
}

// AddressKey is the address of the client.
type AddressKey struct {
	IPv6Bits int `yaml:"ipv6_bits,omitempty" reload:"least=1,most=128,default=64" doc:"How many bits of an IPv6 address are in the key; 64 unless set, because a customer usually gets at least a /64."`
}

// RouteKey is the pattern of the route. It has no fields.
type RouteKey struct{}

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

// isToken reports whether the text is a token of HTTP, as the name of a header is.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !isLetterOrDigit(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// isIdentifier reports whether the text can be the name of a wildcard.
func isIdentifier(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !isLetterOrDigit(r) && r != '_' })
}

func isLetterOrDigit(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// JWTClaim is a claim of a token. It has exactly one of SecretFile, PublicKeyFile, JWKSFile and Unverified. A request
// without a valid token has the key "".
type JWTClaim struct {
	Claim          string        `yaml:"claim" doc:"The name of the claim, whose value must be text or a number."`
	Header         string        `yaml:"header,omitempty" reload:"default=Authorization" doc:"The header with the token, after the word Bearer or alone; Authorization unless set. All requests with several such lines share the key sha256:ambiguous."`
	SecretFile     string        `yaml:"secret_file,omitempty" doc:"The file with the secret of an HS algorithm. Line breaks at its end do not count."`
	PublicKeyFile  string        `yaml:"public_key_file,omitempty" doc:"The file with the public key or certificate, in PEM form, of an RS, PS, ES or EdDSA algorithm."`
	JWKSFile       string        `yaml:"jwks_file,omitempty" doc:"The file with a set of public keys, RFC 7517."`
	Unverified     bool          `yaml:"unverified,omitempty" doc:"Believe the token without verifying it. Only for a gateway behind something that has verified it."`
	Algorithms     []string      `yaml:"algorithms,omitempty" doc:"The algorithms that are accepted, such as RS256; all that fit the key unless set."`
	Issuer         string        `yaml:"issuer,omitempty" doc:"What the claim iss must be; anything unless set."`
	Audience       string        `yaml:"audience,omitempty" doc:"What must be in the claim aud; anything unless set."`
	RequiredClaims []string      `yaml:"required_claims,omitempty" doc:"The claims that a token must have, such as exp: a token without an end is valid unless exp is among them."`
	Leeway         time.Duration `yaml:"leeway,omitempty" doc:"How much the clocks of the issuer and the gateway can differ; 0s unless set."`
}
