package rlsconfig

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/transport/weirrls"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// Validate checks the fields of r that are not in a type with a Validate method of its own, and compares its parts with
// each other.
func (r RLS) Validate() error {
	var p validate.Problems
	if r.Listen != "" {
		fileconfig.CheckListen(&p, "Listen", r.Listen)
	}
	if r.HTTP != "" {
		fileconfig.CheckListen(&p, "HTTP", r.HTTP)
	}
	full := r.WithDefaults()
	r.Common.Check(&p, full.Listen)
	if r.HTTP != "" && fileconfig.SameListener(full.HTTP, full.Listen) {
		p.Add("HTTP", r.HTTP, "must not be the address of {Listen}")
	}
	if r.HTTP != "" && fileconfig.SameListener(full.HTTP, full.Admin) {
		p.Add("HTTP", r.HTTP, "must not be the address of {Admin}")
	}
	p.NotNegative("MaxConnectionAgeGrace", r.MaxConnectionAgeGrace)
	if r.MaxConnectionAge < -1 {
		p.Add("MaxConnectionAge", r.MaxConnectionAge, "must be more than 0, or off")
	}
	seen := make(map[string]bool)
	for i, d := range r.Domains {
		if seen[d.Domain] {
			p.Add(fmt.Sprintf("Domains[%d].Domain", i), d.Domain, "must not be that of another domain: put all its descriptors into one")
		}
		seen[d.Domain] = true
	}
	return p.Err("rls")
}

// Validate checks what belongs to a store.
func (c Counters) Validate() error {
	var p validate.Problems
	switch {
	case c.Store == "" && c.Outage != store.FailClosed:
		p.Add("Outage", nil, "must be left out without {Store}")
	case c.Outage == store.FallBackLocally && !(c.LocalShare > 0 && c.LocalShare <= 1):
		p.Add("LocalShare", c.LocalShare, "must be more than 0 and at most 1")
	case c.Outage != store.FallBackLocally && c.LocalShare != 0:
		p.Add("LocalShare", nil, "must be left out unless {Outage} is %v", store.FallBackLocally)
	}
	return p.Err("rls")
}

// maxName bounds the names of domains and limits in bytes, as [weirrls.NewRules] does.
const maxName = 1024

// Validate checks the name and the outermost rules.
func (d Domain) Validate() error {
	var p validate.Problems
	if d.Domain == "" {
		p.Add("Domain", nil, "must not be empty")
	} else {
		p.Text("Domain", d.Domain, maxName)
	}
	checkTwice(&p, d.Descriptors)
	return p.Err("rls")
}

// Validate checks a rule, and the names of those in it.
func (d Descriptor) Validate() error {
	var p validate.Problems
	if d.Key == "" {
		p.Add("Key", nil, "must not be empty")
	}
	if d.ShareThreshold && !strings.Contains(d.path(), "*") {
		p.Add("ShareThreshold", nil, "must be left out without a * in {Value}")
	}
	checkTwice(&p, d.Descriptors)
	return p.Err("rls")
}

// checkTwice checks that no two rules of a list are for the same entries. Their names are joined as envoyproxy/ratelimit
// joins them, because the rules are found by these names.
func checkTwice(p *validate.Problems, all []Descriptor) {
	seen := make(map[string]int, len(all))
	for i, d := range all {
		first, twice := seen[d.path()]
		switch {
		case d.Key == "":
		case twice && all[first].Key == d.Key:
			p.Add(fmt.Sprintf("Descriptors[%d].Key", i), nil, "must not be that of descriptors[%d], which has the same value", first)
		case twice:
			p.Add(fmt.Sprintf("Descriptors[%d].Key", i), nil, "must not form %q with its value: descriptors[%d] does", d.path(), first)
		default:
			seen[d.path()] = i
		}
	}
}

// Validate checks that there is one limit, and what fits it.
func (l RateLimit) Validate() error {
	var p validate.Problems
	counted := l.RequestsPerUnit != nil || l.Unit != nil
	kinds := 0
	for _, set := range []bool{l.Limiter != "", counted, l.Unlimited} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		p.Add("", nil, "must have one of {Limiter}, {RequestsPerUnit} with {Unit}, and {Unlimited}")
	case counted && l.RequestsPerUnit == nil:
		p.Add("RequestsPerUnit", nil, "must be set with {Unit}")
	case counted && l.Unit == nil:
		p.Add("Unit", nil, "must be set with {RequestsPerUnit}: it is one of second, minute, hour, day, week, month, year")
	case !counted && l.Mode != DefaultMode:
		p.Add("Mode", nil, "must be left out without {RequestsPerUnit}")
	case l.Unlimited && l.OnOverrun != weirrls.OverrunNothing:
		p.Add("OnOverrun", nil, "must be left out with {Unlimited}")
	}
	if l.Name != "" {
		p.Text("Name", l.Name, maxName)
	}
	for i, r := range l.Replaces {
		switch path := fmt.Sprintf("Replaces[%d].Name", i); r.Name {
		case "":
			p.Add(path, nil, "must not be empty")
		case l.Name:
			p.Add(path, nil, "must not be the name of the limit itself")
		}
	}
	return p.Err("rls")
}

// Check compares c with the rest of its file: what the rules name must be able to do what they need.
func (c RLS) Check(f *reload.File) error {
	var p validate.Problems
	for _, name := range f.Limiters() {
		if strings.HasPrefix(name, PipelineName+"/") {
			p.Add("", nil, "must not be set with a limiter called %s: names that begin with %s/ are reserved for the limiters of rules", name, PipelineName)
		}
	}
	for path, d := range c.all() {
		if d.RateLimit == nil {
			continue
		}
		if d.RateLimit.RequestsPerUnit != nil && c.modeOf(*d.RateLimit) == Envoy && d.RateLimit.OnOverrun != weirrls.OverrunNothing {
			p.Add(path+".RateLimit.OnOverrun", nil, "must be left out in mode envoy, which counts every request in full")
		}
		if d.RateLimit.Limiter == "" {
			continue
		}
		if kind := fileconfig.Adapting(f, d.RateLimit.Limiter); kind != "" {
			p.Add(path+".RateLimit.Limiter", d.RateLimit.Limiter,
				"must not be or contain the kind %s, which learns from the latency of requests: the service does not see it", kind)
		}
		fileconfig.Members(f, d.RateLimit.Limiter, func(info reload.LimiterInfo) {
			if info.Kind == "concurrency" {
				p.Add(path+".RateLimit.Limiter", d.RateLimit.Limiter,
					"must not be or contain the kind concurrency, because the protocol does not release permits: use a sliding window that is longer than requests take")
			}
		})
	}
	return p.Err("rls")
}

// modeOf returns the mode in which a limit with RequestsPerUnit counts.
func (c RLS) modeOf(l RateLimit) Mode { return cmp.Or(l.Mode, c.Mode, Exact) }

// all yields the rules of all domains, each after the one that it is in, with its path in c.
func (c RLS) all() iter.Seq2[string, Descriptor] {
	return func(yield func(string, Descriptor) bool) {
		var visit func(path string, all []Descriptor) bool
		visit = func(path string, all []Descriptor) bool {
			for i, d := range all {
				at := fmt.Sprintf("%s.Descriptors[%d]", path, i)
				if !yield(at, d) || !visit(at, d.Descriptors) {
					return false
				}
			}
			return true
		}
		for i, d := range c.Domains {
			if !visit(fmt.Sprintf("Domains[%d]", i), d.Descriptors) {
				return
			}
		}
	}
}

// Rules returns how many rules have a limit.
func (c RLS) Rules() (n int) {
	for _, d := range c.all() {
		if d.RateLimit != nil {
			n++
		}
	}
	return n
}

// Warnings returns what a valid file has that is without effect or dangerous, one line each.
func Warnings(f *reload.File) (all []string) {
	c, ok := reload.SectionOf[RLS](f, Field)
	if !ok {
		return nil
	}
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	used, names, unknown := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	used[c.Counters.Store] = true
	for _, d := range c.all() {
		switch l := d.RateLimit; {
		case l != nil:
			names[l.Name] = true
		case d.ShadowMode || d.QuotaMode || d.DetailedMetric:
			add("rls.domains: the descriptor %s has no rate_limit, so that shadow_mode, quota_mode and detailed_metric have no effect there", d.path())
		case len(d.Descriptors) == 0:
			add("rls.domains: the descriptor %s has neither a rate_limit nor descriptors", d.path())
		}
	}
	for _, d := range c.all() {
		if d.RateLimit == nil {
			continue
		}
		for _, r := range d.RateLimit.Replaces {
			unknown[r.Name] = !names[r.Name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		if unknown[name] {
			add("rls.domains: no limit has the name %s, which replaces names", name)
		}
	}
	queued := make(map[string]bool)
	for _, d := range c.all() {
		if d.RateLimit != nil {
			fileconfig.Members(f, d.RateLimit.Limiter, func(l reload.LimiterInfo) { queued[l.Name] = fileconfig.LimitsOf(l.Options).QueueLimit > 0 })
		}
	}
	for l := range f.AllLimiters() {
		used[l.Store] = true
		if queued[l.Name] {
			add("the queue_limit of the limiter %s has no effect on requests: they never wait", l.Name)
		}
		if l.Partitioned && l.Store == "" && l.MaxPartitions == 0 && l.Key == KeyName {
			add("the limiter %s has no max_partitions, which bounds its memory: clients can make up values", l.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Stores)) {
		if !used[name] {
			add("rls.stores.%s is not used", name)
		}
	}
	return all
}
