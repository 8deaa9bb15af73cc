package gatewayconfig

import "time"

// A Key is how a partitioned limiter finds the key of a request. It has exactly one of its fields.
type Key struct {
	_         struct{}    `reload:"oneof=key"`
	Address   *AddressKey `yaml:"address,omitempty" doc:"The address of the client, as gateway.trusted_proxies tell it."`
	Header    string      `yaml:"header,omitempty" doc:"The value of a request header. A client that can send any value gets a new limiter with each: use it behind something that checks it."`
	PathValue string      `yaml:"path_value,omitempty" doc:"The part of the path that matched the wildcard of this name in the pattern of the route."`
	Query     string      `yaml:"query,omitempty" doc:"The value of a parameter of the URL's query."`
	Cookie    string      `yaml:"cookie,omitempty" doc:"The value of a cookie."`
	JWTClaim  *JWTClaim   `yaml:"jwt_claim,omitempty" doc:"A claim of a token, such as sub."`
	Route     *RouteKey   `yaml:"route,omitempty" doc:"The pattern of the route: all its requests have one key."`
	Composite []string    `yaml:"composite,omitempty" reload:"in=keys" doc:"Several keys together, by name: requests have the same key if they agree in all."`
}

// AddressKey is the address of the client.
type AddressKey struct {
	IPv6Bits int `yaml:"ipv6_bits,omitempty" reload:"least=1,most=128,default=64" doc:"How many bits of an IPv6 address are in the key; 64 unless set, which is what a customer usually has at least."`
}

// RouteKey is the pattern of the route. It has no fields.
type RouteKey struct{}

// JWTClaim is a claim of a token. It has exactly one of SecretFile, PublicKeyFile, JWKSFile and Unverified. A request
// without a token that is valid has the key "".
type JWTClaim struct {
	Claim         string        `yaml:"claim" doc:"The name of the claim, which must be text or a number."`
	Header        string        `yaml:"header,omitempty" reload:"default=Authorization" doc:"The header with the token, after Bearer or alone; Authorization unless set."`
	SecretFile    string        `yaml:"secret_file,omitempty" doc:"The file with the secret of HS256, HS384 or HS512."`
	PublicKeyFile string        `yaml:"public_key_file,omitempty" doc:"The file with the public key, in PEM form, of the RS, PS, ES or EdDSA algorithms."`
	JWKSFile      string        `yaml:"jwks_file,omitempty" doc:"The file with a set of public keys, in the form of RFC 7517."`
	Unverified    bool          `yaml:"unverified,omitempty" doc:"Believe the token without verifying it: only behind something that has."`
	Algorithms    []string      `yaml:"algorithms,omitempty" doc:"The algorithms of signatures that are accepted; all that fit the key unless set."`
	Issuer        string        `yaml:"issuer,omitempty" doc:"What the claim iss must be."`
	Audience      string        `yaml:"audience,omitempty" doc:"What the claim aud must have."`
	Leeway        time.Duration `yaml:"leeway,omitempty" doc:"How much the clocks of the issuer and the gateway can differ; 0s unless set."`
}
