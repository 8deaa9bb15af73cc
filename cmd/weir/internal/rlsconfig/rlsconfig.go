// Package rlsconfig has the part of a configuration file that is for weir rls: the top-level field rls, as Go types with
// their defaults, checks and descriptions. Package rls runs what they describe.
//
//   - rlsconfig.go: RLS, and its rules: Domain, Descriptor and RateLimit.
//   - rules.go: the rules of package weirrls that they stand for, with their limiters.
//   - check.go: what is wrong with a file. explain.go: the file in words, and which rule is for a descriptor of a request.
//   - register.go: how package reload gets all of it.
//
// The rules have the fields of the files of envoyproxy/ratelimit, so that its descriptors can be pasted, and more of
// their own.
//
// The doc tag of a field is its description: in the JSON schema, and in docs/rls-configuration.md, which is made of it.
package rlsconfig

import (
	"cmp"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/transport/weirrls"

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

// The defaults of a rate limit service.
const (
	DefaultListen                = "127.0.0.1:8081"
	DefaultMaxConnectionAge      = 24 * time.Hour
	DefaultMaxConnectionAgeGrace = time.Hour
	DefaultMaxKeys               = 100_000
)

// WithDefaults returns r with the value that applies in every field that a file can leave out, except in its domains. A
// MaxConnectionAge that is off is 0.
func (r RLS) WithDefaults() RLS {
	r.Listen = cmp.Or(r.Listen, DefaultListen)
	r.Common = r.Common.WithDefaults()
	r.MaxConnectionAge = max(cmp.Or(r.MaxConnectionAge, DefaultMaxConnectionAge), 0)
	r.MaxConnectionAgeGrace = cmp.Or(r.MaxConnectionAgeGrace, DefaultMaxConnectionAgeGrace)
	r.Counters.MaxKeys = cmp.Or(r.Counters.MaxKeys, DefaultMaxKeys)
	r.Mode = cmp.Or(r.Mode, Exact)
	return r
}

// A Domain has the rules of the requests that name it.
type Domain struct {
	Domain      string       `yaml:"domain" doc:"The name of the domain."`
	Descriptors []Descriptor `yaml:"descriptors,omitempty" doc:"The rules."`
}

// A Descriptor is a rule, or has rules for what follows in a request's descriptor.
type Descriptor struct {
	Key            string         `yaml:"key" doc:"The key of the entry."`
	Value          string         `yaml:"value,omitempty" doc:"The value of the entry; each * in it matches any number of characters. Without a value, the rule matches all values that no other rule of the list matches. Each matching value has its own counter; see share_threshold."`
	RateLimit      *RateLimit     `yaml:"rate_limit,omitempty" doc:"The limit for descriptors that end here."`
	ShadowMode     bool           `yaml:"shadow_mode,omitempty" doc:"Make the limit decide and report, but never reject."`
	QuotaMode      bool           `yaml:"quota_mode,omitempty" doc:"Make the limit reject only together with all other limits of the request that have quota_mode."`
	DetailedMetric bool           `yaml:"detailed_metric,omitempty" doc:"Name the limit in metrics and events by the values of all entries: at most 1000 names for a rule."`
	ValueToMetric  bool           `yaml:"value_to_metric,omitempty" doc:"Name the limit in metrics and events by the value of this entry, with the same bound."`
	ShareThreshold bool           `yaml:"share_threshold,omitempty" doc:"Make all values that match the * in value share one counter."`
	Metadata       map[string]any `yaml:"metadata,omitempty" doc:"Returned to Envoy if the limit does not reject; see dynamic_metadata."`
	Descriptors    []Descriptor   `yaml:"descriptors,omitempty" doc:"The rules for the next entry."`
}

// A RateLimit is the limit of a rule: a limiter of the file, a number of requests in a unit of time, or none.
type RateLimit struct {
	Limiter         string          `yaml:"limiter,omitempty" reload:"limiter" doc:"The name of a limiter of the file. If it is partitioned by the key descriptor, each counter of the rule has its own; otherwise all share one."`
	RequestsPerUnit *uint32         `yaml:"requests_per_unit,omitempty" doc:"How many requests are admitted in a unit."`
	Unit            *Unit           `yaml:"unit,omitempty" doc:"The unit of requests_per_unit. A month has 30 days, a year 365."`
	Mode            Mode            `yaml:"mode,omitempty" doc:"How requests are counted; as the mode of rls says unless set."`
	Unlimited       bool            `yaml:"unlimited,omitempty" doc:"Admit every request."`
	Name            string          `yaml:"name,omitempty" doc:"The name of the limit in answers and in replaces."`
	Replaces        []Replaced      `yaml:"replaces,omitempty" doc:"The limits that do not apply to a request if this one does."`
	OnOverrun       weirrls.Overrun `yaml:"on_overrun,omitempty" doc:"What a request takes that asks for more than is left: nothing, all of it (debt), or what is left (rest); nothing unless set. With debt, reports at the end of a stream count in full. In mode envoy it is always debt, and cannot be set."`
	FailOpen        bool            `yaml:"fail_open,omitempty" doc:"Admit a request if the limiter cannot decide. The outage policy of a limiter in a store comes first."`
}

// A Replaced is a limit that another one replaces.
type Replaced struct {
	Name string `yaml:"name" doc:"The name of the limit."`
}

// path returns the name of d in one list, as envoyproxy/ratelimit makes it.
func (d Descriptor) path() string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "_" + d.Value
}

// open reports whether the rule is for more values than one.
func (d Descriptor) open() bool { return d.Value == "" || strings.Contains(d.path(), "*") }

// Mode is how requests in a unit of time are counted.
type Mode uint8

// The modes.
const (
	// DefaultMode is what a file leaves out.
	DefaultMode Mode = iota
	// Exact is a sliding window in ten steps, and a rejected request costs nothing.
	Exact
	// Envoy counts as envoyproxy/ratelimit does, see [weirrls.Window].
	Envoy
)

var modeTexts = textenum.Texts[Mode]{Package: "weir rls", Type: "Mode", Texts: []string{DefaultMode: "default", Exact: "exact", Envoy: "envoy"}}

// String returns the text form, or Mode(n) for any other number.
func (m Mode) String() string { return modeTexts.String(m) }

// MarshalText implements [encoding.TextMarshaler].
func (m Mode) MarshalText() ([]byte, error) { return modeTexts.Marshal(m) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *Mode) UnmarshalText(text []byte) error { return modeTexts.Unmarshal(m, text) }

// Body is the form of the body of a response to a request that is rejected.
type Body uint8

// The forms of bodies.
const (
	// EmptyBody leaves the body to Envoy.
	EmptyBody Body = iota
	// ProblemBody is problem details.
	ProblemBody
)

var bodyTexts = textenum.Texts[Body]{Package: "weir rls", Type: "Body", Texts: []string{EmptyBody: "none", ProblemBody: "problem-json"}}

// String returns the text form, or Body(n) for any other number.
func (b Body) String() string { return bodyTexts.String(b) }

// MarshalText implements [encoding.TextMarshaler].
func (b Body) MarshalText() ([]byte, error) { return bodyTexts.Marshal(b) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Body) UnmarshalText(text []byte) error { return bodyTexts.Unmarshal(b, text) }

// Unit is a unit of time. Its values are those of [weirrls.Unit] less 1: the schema lists the texts of the values from 0.
type Unit uint8

var unitTexts = textenum.Texts[Unit]{Package: "weir rls", Type: "Unit", Texts: []string{
	weirrls.Second - 1: "second", weirrls.Minute - 1: "minute", weirrls.Hour - 1: "hour", weirrls.Day - 1: "day",
	weirrls.Week - 1: "week", weirrls.Month - 1: "month", weirrls.Year - 1: "year",
}, AnyCase: true}

// String returns the text form, or Unit(n) for any other number.
func (u Unit) String() string { return unitTexts.String(u) }

// MarshalText implements [encoding.TextMarshaler].
func (u Unit) MarshalText() ([]byte, error) { return unitTexts.Marshal(u) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (u *Unit) UnmarshalText(text []byte) error { return unitTexts.Unmarshal(u, text) }

// inService returns the unit as package weirrls has it.
func (u Unit) inService() weirrls.Unit { return weirrls.Unit(u) + 1 }

// length returns how long the unit is.
func (u Unit) length() time.Duration {
	const day = 24 * time.Hour
	return [...]time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day}[u]
}
