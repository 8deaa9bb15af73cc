package jobs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir/internal/validate"
)

// A Config is the content of a configuration file: limiters, and throttles for kinds of jobs by their names. Package
// jobs/jobsconfig reads one.
type Config struct {
	// Limiters are set as by [Throttler.Set]. Limiters that are not in the list stay as they are.
	Limiters []Definition `yaml:"limiters,omitempty"`
	// Throttles apply to all jobs of their kinds, together with what workers and arguments declare.
	Throttles []KindThrottle `yaml:"throttles,omitempty"`
}

// A KindThrottle is a throttle for kinds of jobs.
type KindThrottle struct {
	// Kinds are names of kinds. One that ends in * stands for all that begin with what is before it.
	Kinds    []string `yaml:"kinds"`
	Throttle `yaml:",inline"`
}

// Validate returns a [weir.OptionsError] with everything that is wrong with c, or nil.
func (c Config) Validate() error {
	_, _, err := c.parse()
	return err
}

// kindThrottles are the throttles of a Config that have been checked.
type kindThrottles []parsedKindThrottle

type parsedKindThrottle struct {
	kinds []string
	*parsedThrottle
}

// checkDefinitions returns the definitions by their limiters, and adds what is wrong with them to p.
func checkDefinitions(p *validate.Problems, field string, definitions []Definition) map[Ref]Definition {
	all := map[Ref]Definition{}
	for i, d := range definitions {
		var inner validate.Problems
		if ref, ok := d.check(&inner); ok {
			if _, twice := all[ref]; twice {
				inner.Add("", short(ref.Name), "must not set this %s a second time", ref.Type.words())
			}
			all[ref] = d
		}
		p.Include(fmt.Sprintf("%s[%d]", field, i), inner.Err("jobs"))
	}
	return all
}

// parse checks a configuration.
func (c Config) parse() (map[Ref]Definition, kindThrottles, error) {
	var p validate.Problems
	definitions := checkDefinitions(&p, "Limiters", c.Limiters)
	var throttles kindThrottles
	for i, k := range c.Throttles {
		var inner validate.Problems
		if len(k.Kinds) == 0 {
			inner.Add("Kinds", nil, "must not be empty")
		}
		for j, kind := range k.Kinds {
			if kind == "" || strings.Contains(strings.TrimSuffix(kind, "*"), "*") {
				inner.Add(fmt.Sprintf("Kinds[%d]", j), short(kind), "must not be empty, and have * at its end only")
			}
		}
		if t := k.Throttle; len(t.Limits) == 0 && !t.Strict && !t.Cancel && t.MinDelay == 0 {
			inner.Add("Limits", nil, "must not be empty without {Strict}, {Cancel} or {MinDelay}")
		}
		throttles = append(throttles, parsedKindThrottle{kinds: k.Kinds, parsedThrottle: k.check(&inner)})
		p.Include(fmt.Sprintf("Throttles[%d]", i), inner.Err("jobs"))
	}
	return definitions, throttles, p.Err("jobs")
}

// of returns the throttles of a kind.
func (ts kindThrottles) of(kind string) (matching []*parsedThrottle) {
	for _, t := range ts {
		if slices.ContainsFunc(t.kinds, func(pattern string) bool {
			prefix, isPrefix := strings.CutSuffix(pattern, "*")
			return kind == pattern || isPrefix && strings.HasPrefix(kind, prefix)
		}) {
			matching = append(matching, t.parsedThrottle)
		}
	}
	return matching
}
