// Package rlsconfig has the part of a configuration file that is for weir rls: the top-level field rls, as Go types with
// their defaults, checks and descriptions. Package rls runs what they describe.
//
//   - rlsconfig.go: RLS, and what belongs to the process: listeners, the admin pages.
//   - domains.go: Domain, Descriptor and RateLimit: the rules.
//   - rules.go: the rules of package weirrls that they stand for, with their limiters.
//   - find.go: which rule is for a descriptor of a request.
//
// The rules have the fields of the files of envoyproxy/ratelimit, so that its descriptors can be pasted, and more of
// their own.
//
// The doc tag of a field is its description: in the JSON schema, and in docs/rls-configuration.md, which is made of it.
package rlsconfig

import (
	"time"

	"github.com/weir-go/weir/store"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// Field is the top-level field of a file that has the part of the rate limit service.
const Field = "rls"

// PipelineName is the name in the registry of the pipeline that the requests of the service run through. The names of the
// limiters of rate_limit fields begin with it and a slash.
const PipelineName = "rls"

// KeyName is the name of the key function of partitioned limiters: the counter of the rule.
const KeyName = "descriptor"

// An RLS is the part of a file that is for weir rls. Fields that a file leaves out are zero: [RLS.WithDefaults] returns what
// applies.
type RLS struct {
	fileconfig.Common `yaml:",inline"`

	Listen                string        `yaml:"listen,omitempty" reload:"fixed,default=127.0.0.1:8081" doc:"The address for gRPC, to which Envoy connects: host:port, or unix: and the path of a socket; 127.0.0.1:8081 unless set. The protocol has no authentication: if Envoy runs on another machine, use tls with client_ca, or a private network."`
	HTTP                  string        `yaml:"http,omitempty" reload:"fixed" doc:"The address for HTTP, with POST /json for clients that cannot use gRPC, and GET /healthcheck: host:port, or unix: and the path of a socket; no HTTP unless set."`
	TLS                   *TLS          `yaml:"tls,omitempty" reload:"fixed" doc:"The certificate of the listeners; without one, clients connect without TLS."`
	Reflection            bool          `yaml:"reflection,omitempty" reload:"fixed" doc:"Serve gRPC reflection, for tools such as grpcurl."`
	MaxConnectionAge      time.Duration `yaml:"max_connection_age,omitempty" reload:"off,fixed,default=24h" doc:"How long a gRPC connection lasts, plus or minus a tenth, so that clients spread over new instances; 24h unless set."`
	MaxConnectionAgeGrace time.Duration `yaml:"max_connection_age_grace,omitempty" reload:"fixed,default=1h" doc:"How long the requests of a connection have to end after max_connection_age; 1h unless set."`
	Counters              Counters      `yaml:"counters,omitempty" reload:"fixed" doc:"Where requests are counted for each rate_limit with requests_per_unit, and for limits that requests bring with them."`
	Mode                  Mode          `yaml:"mode,omitempty" doc:"How requests are counted for each rate_limit with requests_per_unit and without a mode, and for limits that requests bring with them: exact (a rejected request costs nothing) or envoy (as envoyproxy/ratelimit counts); exact unless set."`
	Headers               bool          `yaml:"headers,omitempty" doc:"Add ratelimit-limit, ratelimit-remaining and ratelimit-reset to every response of Envoy, with the numbers of the tightest limit."`
	NoRetryAfter          bool          `yaml:"no_retry_after,omitempty" doc:"Leave out the header retry-after, which rejections have unless set; envoyproxy/ratelimit adds none."`
	Body                  Body          `yaml:"body,omitempty" doc:"The body of Envoy's response to a rejected request; none unless set."`
	DynamicMetadata       bool          `yaml:"dynamic_metadata,omitempty" doc:"Return the domain, the descriptors and the metadata of the limits that did not reject, for Envoy's other filters."`
	ShadowMode            bool          `yaml:"shadow_mode,omitempty" doc:"Make all limits decide and report, but never reject."`
	QuotaMode             bool          `yaml:"quota_mode,omitempty" doc:"Reject a request only if all its limits reject."`
	Domains               []Domain      `yaml:"domains,omitempty" doc:"The domains that requests name, with their rules. A request with another domain passes."`
}

// TLS is the certificate of the listeners, and which clients they accept. The files of the certificate are read again when
// they change.
type TLS struct {
	fileconfig.TLS `yaml:",inline"`
	ClientCA       string `yaml:"client_ca,omitempty" doc:"The file with the CA certificates, in PEM form, one of which must have signed the client's certificate; any client can connect unless set. It is read at the start."`
}

// Counters say where requests are counted.
type Counters struct {
	Store      string             `yaml:"store,omitempty" reload:"in=stores" doc:"The store with the counters, which all instances share; each instance counts for itself unless set."`
	Outage     store.OutagePolicy `yaml:"outage,omitempty" doc:"What happens while the store is unavailable: requests are rejected (fail_closed), admitted (fail_open), or counted by each instance for itself (fall_back_locally; limits in mode envoy cannot do this, and reject); fail_closed unless set."`
	LocalShare float64            `yaml:"local_share,omitempty" doc:"With fall_back_locally, the share of each limit that this instance has: more than 0, at most 1."`
	MaxKeys    int                `yaml:"max_keys,omitempty" reload:"default=100000,least=1" doc:"The maximum number of counters in the process, for each limit or, in mode envoy, for all limits with the same unit together; 100000 unless set."`
}
