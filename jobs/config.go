package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// A Config is what a configuration file says: limiters, and throttles for kinds of jobs by their names. [ParseConfig]
// reads one.
type Config struct {
	// Limiters are set as the methods of [Throttler] do it. What is not in the list stays as it is.
	Limiters []Definition `yaml:"limiters,omitempty"`
	// Throttles hold for all jobs of their kinds, with what workers and arguments declare on top.
	Throttles []KindThrottle `yaml:"throttles,omitempty"`
}

// A Definition sets one limiter. Exactly one of its name fields is set, and the options that belong to it.
type Definition struct {
	Semaphore     string `yaml:"semaphore,omitempty"`
	FixedWindow   string `yaml:"fixed_window,omitempty"`
	SlidingWindow string `yaml:"sliding_window,omitempty"`
	DynamicWindow string `yaml:"dynamic_window,omitempty"`

	// See [SemaphoreOptions].
	MaxCount int `yaml:"max_count,omitempty"`
	// See [FixedWindowOptions], [SlidingWindowOptions] and [DynamicWindowOptions].
	Limit    int           `yaml:"limit,omitempty"`
	Interval time.Duration `yaml:"interval,omitempty"`
	Buckets  int           `yaml:"buckets,omitempty"`
	// See [DynamicWindowOptions].
	Capacity int  `yaml:"capacity,omitempty"`
	MinLimit int  `yaml:"min_limit,omitempty"`
	MaxLimit int  `yaml:"max_limit,omitempty"`
	MaxKeys  int  `yaml:"max_keys,omitempty"`
	AtOnce   bool `yaml:"at_once,omitempty"`
}

// A KindThrottle is a throttle for kinds of jobs.
type KindThrottle struct {
	// Kinds are names of kinds. One that ends in * stands for all that begin with what is before it.
	Kinds    []string `yaml:"kinds"`
	Throttle `yaml:",inline"`
}

// ParseConfig reads a Config in YAML or JSON. Fields that are not known and values that cannot be are errors that name
// the line or the field. Durations are written as 1h30m.
//
//	limiters:
//	  - semaphore: smtp
//	    max_count: 10
//	  - dynamic_window: newsletter
//	    interval: 1h
//	    capacity: 10000
//	    min_limit: 1000
//	throttles:
//	  - kinds: [newsletter_*]
//	    limits:
//	      - semaphore: smtp
//	      - dynamic_window: newsletter
//	        key: "{tenant}"
func ParseConfig(text []byte) (Config, error) {
	var c Config
	var document, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) {
		return c, nil
	}
	if err == nil {
		if more := d.Decode(&more); !errors.Is(more, io.EOF) {
			return c, fmt.Errorf("%w: there is more than one document", ErrInvalidOptions)
		}
		if err = prepareNode(&document); err == nil {
			err = document.Load(&c, yaml.WithV3Defaults(), yaml.WithKnownFields())
		}
	}
	if err != nil {
		return Config{}, fmt.Errorf("%w: %s", ErrInvalidOptions, strings.ReplaceAll(err.Error(), ErrInvalidOptions.Error()+": ", ""))
	}
	if _, _, err := c.parse(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// prepareNode refuses elements of lists that have no value: the decoder would leave them out, and a limit that was half
// written would limit nothing. A deadline may be -1, as in [Limit].
func prepareNode(n *yaml.Node) error {
	for i, inner := range n.Content {
		if n.Kind == yaml.SequenceNode && inner.ShortTag() == "!!null" {
			return fmt.Errorf("line %d: an element of a list has no value", inner.Line)
		}
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "deadline" && inner.Value == "-1" {
			inner.SetString("-1ns")
		}
		if err := prepareNode(inner); err != nil {
			return err
		}
	}
	return nil
}

// definition returns the name and the options that d has.
func (d Definition) definition() (string, definition, error) {
	type named struct {
		name    string
		options definition
		used    Definition // what is used of d
	}
	var all []named
	if d.Semaphore != "" {
		all = append(all, named{d.Semaphore, SemaphoreOptions{MaxCount: d.MaxCount}, Definition{Semaphore: d.Semaphore, MaxCount: d.MaxCount}})
	}
	if d.FixedWindow != "" {
		all = append(all, named{d.FixedWindow, FixedWindowOptions{Limit: d.Limit, Interval: d.Interval},
			Definition{FixedWindow: d.FixedWindow, Limit: d.Limit, Interval: d.Interval}})
	}
	if d.SlidingWindow != "" {
		all = append(all, named{d.SlidingWindow, SlidingWindowOptions{Limit: d.Limit, Interval: d.Interval, Buckets: d.Buckets},
			Definition{SlidingWindow: d.SlidingWindow, Limit: d.Limit, Interval: d.Interval, Buckets: d.Buckets}})
	}
	if d.DynamicWindow != "" {
		used := d
		used.MaxCount = 0
		all = append(all, named{d.DynamicWindow, DynamicWindowOptions{Limit: d.Limit, Interval: d.Interval, Buckets: d.Buckets, Capacity: d.Capacity,
			MinLimit: d.MinLimit, MaxLimit: d.MaxLimit, MaxKeys: d.MaxKeys, AtOnce: d.AtOnce}, used})
	}
	if len(all) != 1 {
		return "", nil, fmt.Errorf("must have one of semaphore, fixed_window, sliding_window and dynamic_window, has %d", len(all))
	}
	if all[0].used != d {
		return "", nil, fmt.Errorf("%v has options that are not for a %s", Ref{Type: all[0].options.limiterType(), Name: all[0].name},
			strings.ReplaceAll(string(all[0].options.limiterType()), "_", " "))
	}
	return all[0].name, all[0].options, nil
}

// A setting is a Definition that has been checked.
type setting struct {
	ref     Ref
	options definition
}

// kindRules are the throttles of a Config that have been checked.
type kindRules []kindRule

type kindRule struct {
	kinds []string
	*parsed
}

// parse checks a configuration. Errors name its fields as they are in a file.
func (c Config) parse() ([]setting, kindRules, error) {
	p := problems{file: true}
	var settings []setting
	seen := map[Ref]bool{}
	for i, d := range c.Limiters {
		name, options, err := d.definition()
		if err != nil {
			p.add("limiters[%d]: %v", i, err)
			continue
		}
		ref := Ref{Type: options.limiterType(), Name: name}
		bad := problems{file: true}
		if problem := badName(name); problem != "" {
			bad.add("the name %.120q %s", name, problem)
		}
		options.check(&bad)
		if seen[ref] {
			bad.add("it is there twice")
		}
		seen[ref] = true
		p.include(fmt.Sprintf("limiters[%d]: %v: ", i, ref), bad)
		settings = append(settings, setting{ref, options})
	}
	var rules kindRules
	for i, k := range c.Throttles {
		if len(k.Kinds) == 0 {
			p.add("throttles[%d]: kinds is empty", i)
		}
		for _, kind := range k.Kinds {
			if kind == "" || strings.Contains(strings.TrimSuffix(kind, "*"), "*") {
				p.add("throttles[%d]: the kind %q must not be empty, and have * at its end only", i, kind)
			}
		}
		bad := problems{file: true}
		rules = append(rules, kindRule{kinds: k.Kinds, parsed: k.check(&bad)})
		p.include(fmt.Sprintf("throttles[%d]: ", i), bad)
	}
	return settings, rules, p.err()
}

// of returns the throttles of a kind.
func (rules kindRules) of(kind string) (ts []*parsed) {
	for _, r := range rules {
		for _, k := range r.kinds {
			prefix, open := strings.CutSuffix(k, "*")
			if kind == k || open && strings.HasPrefix(kind, prefix) {
				ts = append(ts, r.parsed)
				break
			}
		}
	}
	return ts
}
