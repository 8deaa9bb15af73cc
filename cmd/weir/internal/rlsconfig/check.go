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
	"github.com/weir-go/weir/transport/weirrls"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

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
