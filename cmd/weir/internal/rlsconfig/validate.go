package rlsconfig

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/internal/validate"
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
