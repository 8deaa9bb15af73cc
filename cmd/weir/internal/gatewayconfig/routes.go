package gatewayconfig

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/transport/weirhttp"
)

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
