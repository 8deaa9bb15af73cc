//go:build !js

package rlsoracle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir/transport/weirrls"
)

// A domainRules is a file of the other server.
type domainRules struct {
	Domain      string
	Descriptors []*rule `yaml:",omitempty"`
}

// A rule is a descriptor of the other server's file.
type rule struct {
	Key            string
	Value          string     `yaml:",omitempty"`
	RateLimit      *rateLimit `yaml:"rate_limit,omitempty"`
	Descriptors    []*rule    `yaml:",omitempty"`
	ShadowMode     bool       `yaml:"shadow_mode,omitempty"`
	QuotaMode      bool       `yaml:"quota_mode,omitempty"`
	DetailedMetric bool       `yaml:"detailed_metric,omitempty"`
	ValueToMetric  bool       `yaml:"value_to_metric,omitempty"`
	ShareThreshold bool       `yaml:"share_threshold,omitempty"`
}

type rateLimit struct {
	RequestsPerUnit uint32     `yaml:"requests_per_unit"`
	Unit            string     `yaml:",omitempty"`
	Unlimited       bool       `yaml:",omitempty"`
	Name            string     `yaml:",omitempty"`
	Replaces        []replaced `yaml:",omitempty"`
}

type replaced struct{ Name string }

// parseRules reads a file of the other server.
func parseRules(t *testing.T, file string) []*domainRules {
	t.Helper()
	var d domainRules
	require.NoError(t, yaml.Unmarshal([]byte(file), &d))
	return []*domainRules{&d}
}

// file returns the rules as the other server reads them.
func (d *domainRules) file() string {
	text, err := yaml.Marshal(d)
	if err != nil {
		panic(err)
	}
	return string(text)
}

var units = map[string]weirrls.Unit{
	"second": weirrls.Second, "minute": weirrls.Minute, "hour": weirrls.Hour, "day": weirrls.Day,
	"week": weirrls.Week, "month": weirrls.Month, "year": weirrls.Year,
}

// ours returns the rules as weirrls has them: the limits are windows of the other server.
func (d *domainRules) ours() weirrls.Domain {
	return weirrls.Domain{Name: d.Domain, Descriptors: ourDescriptors(d.Descriptors)}
}

func ourDescriptors(rules []*rule) []weirrls.Descriptor {
	var all []weirrls.Descriptor
	for _, r := range rules {
		d := weirrls.Descriptor{
			Key: r.Key, Value: r.Value, Descriptors: ourDescriptors(r.Descriptors), ShareThreshold: r.ShareThreshold,
			DetailedMetric: r.DetailedMetric, ValueToMetric: r.ValueToMetric,
		}
		if l := r.RateLimit; l != nil {
			d.Limit = &weirrls.Limit{Name: l.Name, Unlimited: l.Unlimited, Shadow: r.ShadowMode, Quota: r.QuotaMode}
			if !l.Unlimited {
				d.Limit.Window = &weirrls.Window{RequestsPerUnit: l.RequestsPerUnit, Unit: units[strings.ToLower(l.Unit)]}
			}
			for _, other := range l.Replaces {
				d.Limit.Replaces = append(d.Limit.Replaces, other.Name)
			}
		}
		all = append(all, d)
	}
	return all
}
