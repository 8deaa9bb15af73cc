// Package gatewayconfig has the gateway's part of a configuration file: the top-level field gateway, as Go types with
// their defaults, checks, descriptions and key functions. Package gateway runs what they describe.
//
//   - gatewayconfig.go: Gateway and all that it has: Upstream, Policy, Route, Key.
//   - patterns.go: the patterns of routes.
//   - keys.go: the key functions that limiters of the file can name. jwt.go: the claims of tokens.
//   - check.go: what is wrong with a file. explain.go: the file in words.
//   - register.go: the file in force, or simulated.
//
// The doc tag of a field is its description: in the JSON schema, and in docs/gateway-configuration.md, which is made of
// it. The reload tag has the rules that package reload enforces, see [reload.RegisterSection].
package gatewayconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// Field is the top-level field of a file that has the gateway's part.
const Field = "gateway"

// PipelineName is the name in the registry of the pipeline that the requests of the gateway run through.
const PipelineName = "gateway"

// A Gateway is the gateway's part of a file. Fields that a file leaves out are zero: [Gateway.WithDefaults] returns what
// applies.
type Gateway struct {
	fileconfig.Common `yaml:",inline"`

	Listen              string              `yaml:"listen,omitempty" reload:"fixed,default=:8080" doc:"The address that clients connect to: host:port, or unix: and the path of a socket; :8080 unless set."`
	TLS                 *fileconfig.TLS     `yaml:"tls,omitempty" reload:"fixed" doc:"The certificate of the listener; without one, clients connect without TLS."`
	H2C                 bool                `yaml:"h2c,omitempty" reload:"fixed" doc:"Accept HTTP/2 without TLS."`
	TrustedProxies      []Network           `yaml:"trusted_proxies,omitempty" doc:"The networks and addresses of the proxies before the gateway, whose header says where a request comes from; unix trusts all that connect by a Unix socket."`
	ClientAddressHeader string              `yaml:"client_address_header,omitempty" reload:"default=X-Forwarded-For" doc:"The header in which the trusted proxies write the address of their client; X-Forwarded-For unless set."`
	Via                 string              `yaml:"via,omitempty" reload:"default=weir" doc:"The name of the gateway in the Via of the requests for upstreams, or off for no Via; weir unless set."`
	ReadHeaderTimeout   time.Duration       `yaml:"read_header_timeout,omitempty" reload:"off,fixed,default=10s" doc:"How long a client can take to send the header of a request; 10s unless set."`
	IdleTimeout         time.Duration       `yaml:"idle_timeout,omitempty" reload:"off,fixed,default=2m" doc:"How long a connection without a request stays open; 2m unless set."`
	MaxHeaderBytes      int                 `yaml:"max_header_bytes,omitempty" reload:"fixed,least=4096,default=1048576" doc:"The largest header of a request, in bytes; 1048576 unless set."`
	AccessLog           AccessLog           `yaml:"access_log,omitempty" doc:"The log of requests, one line of JSON each."`
	Headers             weirhttp.Headers    `yaml:"headers,omitempty" doc:"The fields that tell clients what is left of their quota, of all policies that do not say otherwise; none unless set."`
	Body                Body                `yaml:"body,omitempty" doc:"The body of the answer to a request that is rejected, of all policies that do not say otherwise; plain unless set."`
	Shadow              bool                `yaml:"shadow,omitempty" doc:"Make all policies decide and report, but never reject and never wait."`
	Keys                map[string]Key      `yaml:"keys,omitempty" doc:"The keys that partitioned limiters of the file can name, by name."`
	Upstreams           map[string]Upstream `yaml:"upstreams,omitempty" doc:"The servers behind the gateway, by name."`
	Policies            map[string]Policy   `yaml:"policies,omitempty" doc:"What limits requests, by name."`
	Global              []string            `yaml:"global,omitempty" reload:"in=policies" doc:"The policies of all routes, which are asked before those of the route."`
	Routes              []Route             `yaml:"routes" doc:"Which requests go to which upstream."`
}

// AccessLog says where the lines about requests go.
type AccessLog struct {
	Off    bool   `yaml:"off,omitempty" doc:"Write no lines."`
	Output Output `yaml:"output,omitempty" doc:"Where the lines go; stdout unless set."`
	Query  bool   `yaml:"query,omitempty" doc:"Log the query of the URL, too, which can have secrets; only the path is logged unless set."`
	Keys   bool   `yaml:"keys,omitempty" doc:"Log the keys of partitioned limiters, such as API keys, as they are; a hash of them is logged unless set."`
}

// An Upstream is a server behind the gateway, or several that answer alike.
type Upstream struct {
	Addresses             []Address     `yaml:"addresses" doc:"The addresses of the servers, such as http://10.0.0.7:8080 or https://[2001:db8::7]/base. A path stands before the path of each request."`
	Health                *Health       `yaml:"health,omitempty" doc:"When an address that fails is asked only if no other address can be. Without effect for an upstream with one address."`
	KeepHost              bool          `yaml:"keep_host,omitempty" doc:"Send the Host that the client sent; the host of the address is sent unless set."`
	H2C                   bool          `yaml:"h2c,omitempty" doc:"Speak HTTP/2 without TLS to addresses with http."`
	DialTimeout           time.Duration `yaml:"dial_timeout,omitempty" reload:"default=5s" doc:"How long it can take to connect to an address, TLS included; 5s unless set."`
	ResponseHeaderTimeout time.Duration `yaml:"response_header_timeout,omitempty" doc:"How long an address can take to begin its answer after it has the request; 0s: as long as the client waits, or the pipeline of the route lets it."`
	MaxConnections        int           `yaml:"max_connections,omitempty" reload:"least=0" doc:"How many connections to each address there can be, others wait; 0: no limit. Not for HTTP/2."`
	TLS                   *UpstreamTLS  `yaml:"tls,omitempty" doc:"For addresses with https: whom to trust, and who the gateway is. The authorities of the system are trusted unless set."`
}

// Health is when an address is asked only if no other one can be: the options of a circuit breaker for each address of an
// upstream with several.
type Health struct {
	Off bool `yaml:"off,omitempty" doc:"Treat addresses that fail like others."`

	circuitbreaker.Options `yaml:",inline"`
	// Name hides the name of the circuit breaker, which is made from the upstream and the address.
	Name string `yaml:"-"`
	// RetryRejections hides that of the circuit breaker, which rejects nothing here.
	RetryRejections bool `yaml:"-"`
	// ConsecutiveFailures hides that of the circuit breaker, which has no default.
	ConsecutiveFailures int `yaml:"consecutive_failures,omitempty" reload:"off,least=-1,default=5" doc:"How many failures in a row are too many; 5 unless set, off: only failure_ratio counts."`
}

// withDefaults returns h with its defaults filled in. A nil h has all of them.
func (h *Health) withDefaults() *Health {
	full := *cmp.Or(h, new(Health))
	full.ConsecutiveFailures = cmp.Or(full.ConsecutiveFailures, DefaultFailures)
	full.Options.ConsecutiveFailures = max(full.ConsecutiveFailures, 0)
	return &full
}

// Validate checks the options of the circuit breaker.
func (h *Health) Validate() error { return h.withDefaults().Options.Validate() }

// Breaker returns the options of the circuit breaker of each address. It returns false if there is none: with one address there
// is nothing to choose, and what would be left out is the whole upstream. u must have its defaults.
func (u Upstream) Breaker() (circuitbreaker.Options, bool) {
	return u.Health.Options, len(u.Addresses) > 1 && !u.Health.Off
}

// UpstreamTLS is for addresses with https. The files are read when the upstream comes into force.
type UpstreamTLS struct {
	CA          string `yaml:"ca,omitempty" doc:"The file with the certificates of the authorities to trust, in PEM form; those of the system unless set."`
	ServerName  string `yaml:"server_name,omitempty" doc:"The name in the certificate of the server; the host of the address unless set."`
	Certificate string `yaml:"certificate,omitempty" doc:"The file with the certificate that the gateway shows, in PEM form."`
	Key         string `yaml:"key,omitempty" doc:"The file with the private key to certificate, in PEM form."`
}

// A Policy limits the requests of the routes that name it, see [weirhttp.Policy].
type Policy struct {
	Limiter  string            `yaml:"limiter" reload:"limiter" doc:"The name of a limiter under limiters."`
	Headers  *weirhttp.Headers `yaml:"headers,omitempty" doc:"The fields that tell clients what is left of their quota; those of gateway.headers unless set."`
	Quota    int64             `yaml:"quota,omitempty" reload:"least=0" doc:"The quota that the fields tell, in permits; that of the limiter unless set."`
	Window   time.Duration     `yaml:"window,omitempty" doc:"The time that quota is for; that of the limiter unless set."`
	Shadow   bool              `yaml:"shadow,omitempty" doc:"Decide and report, but never reject and never wait."`
	FailOpen bool              `yaml:"fail_open,omitempty" doc:"Admit a request if the limiter cannot decide, as when its store is away; such a request gets 503 unless set."`
	MaxWait  time.Duration     `yaml:"max_wait,omitempty" reload:"off" doc:"The longest wait in the queue of the limiter; 0s: as long as the client waits, off: no wait."`
	Timeout  time.Duration     `yaml:"timeout,omitempty" doc:"How long a request can hold its permits; 0s: no limit. Not for streams."`
	Cost     int               `yaml:"cost,omitempty" reload:"least=1,default=1" doc:"How many permits a request takes; 1 unless set."`
	Status   int               `yaml:"status,omitempty" doc:"The status of a request that is rejected, from 400 to 599. Unless set, 429 if the client is over its quota, and 503 if the server is short of capacity."`
	Body     Body              `yaml:"body,omitempty" doc:"The body of the answer to a request that is rejected; that of gateway.body unless set."`
}

// A Route says where the requests go that match a pattern.
type Route struct {
	Match       string   `yaml:"match" doc:"The pattern of [net/http.ServeMux](https://pkg.go.dev/net/http#hdr-Patterns-ServeMux): a method or none, a host or none, and a path, such as GET api.example.com/orders/{id}."`
	Upstream    string   `yaml:"upstream" reload:"in=upstreams" doc:"The name of an upstream."`
	Policies    []string `yaml:"policies,omitempty" reload:"in=policies" doc:"The names of the policies, in the order in which they are asked."`
	Exempt      bool     `yaml:"exempt,omitempty" doc:"Do not ask the policies in global."`
	Pipeline    string   `yaml:"pipeline,omitempty" reload:"pipeline" doc:"The name of the pipeline around the requests to the upstream, with retries, hedging, timeouts and circuit breakers. Only requests that may be repeated are."`
	StripPrefix string   `yaml:"strip_prefix,omitempty" doc:"What is removed from the beginning of the path before the request goes to the upstream."`
}

// The defaults of a gateway.
const (
	DefaultListen              = ":8080"
	DefaultClientAddressHeader = "X-Forwarded-For"
	DefaultVia                 = "weir"
	DefaultReadHeaderTimeout   = 10 * time.Second
	DefaultIdleTimeout         = 2 * time.Minute
	DefaultMaxHeaderBytes      = 1 << 20
	DefaultDialTimeout         = 5 * time.Second
	DefaultFailures            = 5 // in a row, until an address is asked only if no other one can be
	DefaultTokenHeader         = "Authorization"
	DefaultIPv6Bits            = 64
)

// WithDefaults returns g with the value that applies in every field that a file can leave out. A timeout that is off is
// 0, as package net/http has it, and a Via that is off is empty. Maps and lists are copies.
func (g Gateway) WithDefaults() Gateway {
	g.Listen = cmp.Or(g.Listen, DefaultListen)
	g.Common = g.Common.WithDefaults()
	g.ClientAddressHeader = cmp.Or(g.ClientAddressHeader, DefaultClientAddressHeader)
	if g.Via = cmp.Or(g.Via, DefaultVia); g.Via == "off" {
		g.Via = ""
	}
	g.ReadHeaderTimeout = orOff(g.ReadHeaderTimeout, DefaultReadHeaderTimeout)
	g.IdleTimeout = orOff(g.IdleTimeout, DefaultIdleTimeout)
	g.MaxHeaderBytes = cmp.Or(g.MaxHeaderBytes, DefaultMaxHeaderBytes)
	g.Body = cmp.Or(g.Body, PlainBody)
	g.Upstreams = maps.Clone(g.Upstreams)
	for name, u := range g.Upstreams {
		u.DialTimeout = cmp.Or(u.DialTimeout, DefaultDialTimeout)
		u.Health = u.Health.withDefaults()
		g.Upstreams[name] = u
	}
	g.Policies = maps.Clone(g.Policies)
	for name, p := range g.Policies {
		p.Headers = cmp.Or(p.Headers, &g.Headers)
		p.Body = cmp.Or(p.Body, g.Body)
		p.Cost = cmp.Or(p.Cost, 1)
		p.Shadow = p.Shadow || g.Shadow
		g.Policies[name] = p
	}
	g.Global, g.Routes = slices.Clone(g.Global), slices.Clone(g.Routes)
	return g
}

// orOff returns d, or the default if d is 0, or 0 if d is -1, which stands for off.
func orOff(d, byDefault time.Duration) time.Duration { return max(cmp.Or(d, byDefault), 0) }

// Body is the form of the answer to a request that is rejected.
type Body uint8

// The forms of answers.
const (
	// DefaultBody is what a file leaves out.
	DefaultBody Body = iota
	// PlainBody is one line of text, see [weirhttp.PlainText].
	PlainBody
	// ProblemBody is problem details, see [weirhttp.ProblemJSON].
	ProblemBody
)

var bodyTexts = textenum.Texts[Body]{Package: "gateway", Type: "Body", Texts: []string{
	DefaultBody: "default", PlainBody: "plain", ProblemBody: "problem-json",
}}

// String returns the text form, or Body(n) for any other number.
func (b Body) String() string { return bodyTexts.String(b) }

// MarshalText implements [encoding.TextMarshaler].
func (b Body) MarshalText() ([]byte, error) { return bodyTexts.Marshal(b) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Body) UnmarshalText(text []byte) error { return bodyTexts.Unmarshal(b, text) }

// Write returns the function that writes such an answer.
func (b Body) Write() weirhttp.Body {
	if b == ProblemBody {
		return weirhttp.ProblemJSON
	}
	return weirhttp.PlainText
}

// Output is where a log goes.
type Output uint8

// The outputs.
const (
	Stdout Output = iota
	Stderr
)

var outputTexts = textenum.Texts[Output]{Package: "gateway", Type: "Output", Texts: []string{Stdout: "stdout", Stderr: "stderr"}}

// String returns the text form, or Output(n) for any other number.
func (o Output) String() string { return outputTexts.String(o) }

// MarshalText implements [encoding.TextMarshaler].
func (o Output) MarshalText() ([]byte, error) { return outputTexts.Marshal(o) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Output) UnmarshalText(text []byte) error { return outputTexts.Unmarshal(o, text) }

// A Network is a network or an address of trusted proxies. The zero Network stands for all peers of Unix sockets.
type Network struct{ netip.Prefix }

const unixNetwork = "unix"

var errNetwork = errors.New("must be a network such as 10.0.0.0/8, an address, or unix")

// UnmarshalText reads a network such as 10.0.0.0/8, an address, or "unix".
func (n *Network) UnmarshalText(text []byte) error {
	if string(text) == unixNetwork {
		n.Prefix = netip.Prefix{}
		return nil
	}
	prefixes, err := weirhttp.ParseTrusted(string(text))
	if err != nil {
		return fmt.Errorf("%w, got %.60q", errNetwork, string(text))
	}
	n.Prefix = prefixes[0]
	return nil
}

// MarshalText is the opposite of UnmarshalText.
func (n Network) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// String returns the network as a file can have it.
func (n Network) String() string {
	if !n.IsValid() {
		return unixNetwork
	}
	return n.Prefix.String()
}

// PoliciesOf returns the names of the policies that requests of a route pass, in the order in which they are asked.
func (g Gateway) PoliciesOf(r Route) []string {
	if r.Exempt {
		return r.Policies
	}
	return slices.Concat(g.Global, r.Policies)
}

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

// An Address is the URL of an upstream server: scheme, host and port, and a path that stands before the path of each
// request, without a slash at its end. It has no user, query or fragment.
type Address struct{ url.URL }

// UnmarshalText reads a URL such as http://10.0.0.7:8080.
func (a *Address) UnmarshalText(text []byte) error {
	const wanted = "must be a URL such as http://10.0.0.7:8080 or https://[2001:db8::7]"
	u, err := url.Parse(string(text))
	if err != nil {
		if !strings.Contains(string(text), "://") {
			return errors.New(wanted + ": http:// or https:// is missing")
		}
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return fmt.Errorf("%s: %w", wanted, err)
	}
	switch host := u.Hostname(); {
	case u.Host == "" && !strings.Contains(string(text), "://"):
		return errors.New(wanted + ": http:// or https:// is missing")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s: the scheme is %q", wanted, u.Scheme)
	case host == "":
		return errors.New(wanted + ": the host is missing")
	case u.User != nil:
		return errors.New(wanted + ", without a user or a password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New(wanted + ", without a query or a fragment")
	case u.Port() != "" && !validPort(u.Port()), strings.HasSuffix(u.Host, ":"):
		return fmt.Errorf("%s: the port must be from 1 to 65535", wanted)
	case strings.Contains(host, ":") && !fileconfig.IsIPv6(host):
		return fmt.Errorf("%s: %q is no IPv6 address", wanted, host)
	case hasDotSegment(u.Path):
		return errors.New(wanted + ", without . or .. in the path")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	a.URL = *u
	return nil
}

// MarshalText is the opposite of UnmarshalText.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// String returns the URL.
func (a Address) String() string { return a.URL.String() }

func validPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
