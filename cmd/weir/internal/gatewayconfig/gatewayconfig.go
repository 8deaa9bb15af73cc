// Package gatewayconfig has the gateway's part of a configuration file: the top-level field gateway, as Go types with
// their defaults, checks, descriptions and key functions. Package gateway runs what they describe.
//
//   - gatewayconfig.go: Gateway, and what belongs to the process: listeners, logs, the admin pages.
//   - routes.go: Upstream, Policy and Route.
//   - keys.go: Key, and the key functions that limiters of the file can name.
//
// The doc tag of a field is its description: in the JSON schema, and in docs/gateway-configuration.md, which is made of
// it. The reload tag has the rules that package reload enforces, see [reload.RegisterSection].
package gatewayconfig

import (
	"time"

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
