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
	Limiters []Definition `json:"limiters,omitempty" yaml:"limiters,omitempty"`
	// Throttles hold for all jobs of their kinds, with what workers and arguments declare on top.
	Throttles []KindThrottle `json:"throttles,omitempty" yaml:"throttles,omitempty"`
}

// A Definition sets one limiter. Exactly one of its name fields is set, and the options that belong to it.
type Definition struct {
	Semaphore     string `json:"semaphore,omitempty" yaml:"semaphore,omitempty"`
	FixedWindow   string `json:"fixed_window,omitempty" yaml:"fixed_window,omitempty"`
	SlidingWindow string `json:"sliding_window,omitempty" yaml:"sliding_window,omitempty"`
	DynamicWindow string `json:"dynamic_window,omitempty" yaml:"dynamic_window,omitempty"`

	// See [SemaphoreOptions].
	MaxCount int `json:"max_count,omitempty" yaml:"max_count,omitempty"`
	// See [FixedWindowOptions], [SlidingWindowOptions] and [DynamicWindowOptions].
	Limit    int           `json:"limit,omitempty" yaml:"limit,omitempty"`
	Interval time.Duration `json:"interval,omitempty" yaml:"interval,omitempty"`
	Buckets  int           `json:"buckets,omitempty" yaml:"buckets,omitempty"`
	// See [DynamicWindowOptions].
	Capacity int  `json:"capacity,omitempty" yaml:"capacity,omitempty"`
	MinLimit int  `json:"min_limit,omitempty" yaml:"min_limit,omitempty"`
	MaxLimit int  `json:"max_limit,omitempty" yaml:"max_limit,omitempty"`
	MaxKeys  int  `json:"max_keys,omitempty" yaml:"max_keys,omitempty"`
	AtOnce   bool `json:"at_once,omitempty" yaml:"at_once,omitempty"`
}

// A KindThrottle is a throttle for kinds of jobs.
type KindThrottle struct {
	// Kinds are names of kinds. One that ends in * stands for all that begin with what is before it.
	Kinds    []string `json:"kinds" yaml:"kinds"`
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
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%w: %w", ErrInvalidOptions, err)
	}
	var more any
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%w: there is more than one document", ErrInvalidOptions)
	}
	_, _, err := c.parse()
	return c, err
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

func (c Config) parse() ([]setting, kindRules, error) {
	var p problems
	var settings []setting
	seen := map[Ref]bool{}
	for i, d := range c.Limiters {
		name, options, err := d.definition()
		if err != nil {
			p.add("limiters[%d]: %v", i, err)
			continue
		}
		ref := Ref{Type: options.limiterType(), Name: name}
		var bad problems
		if problem := badName(name); problem != "" {
			bad.add("the name %.120q %s", name, problem)
		}
		options.check(&bad)
		if seen[ref] {
			bad.add("it is there twice")
		}
		seen[ref] = true
		for _, problem := range bad {
			p.add("limiters[%d]: %v: %s", i, ref, problem)
		}
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
		t, err := k.Throttle.parse()
		if err != nil {
			p.add("throttles[%d]: %s", i, strings.TrimPrefix(err.Error(), ErrInvalidOptions.Error()+": "))
			continue
		}
		rules = append(rules, kindRule{kinds: k.Kinds, parsed: t})
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
