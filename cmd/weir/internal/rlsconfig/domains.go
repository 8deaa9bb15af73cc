package rlsconfig

import (
	"strings"

	"github.com/weir-go/weir/transport/weirrls"
)

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
