package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
)

// A Config is the content of a configuration file: limiters, and throttles for kinds of jobs by their names. [ParseConfig]
// reads one.
type Config struct {
	// Limiters are set as by [Throttler.SetSemaphore]. Limiters that are not in the list stay as they are.
	Limiters []Definition `yaml:"limiters,omitempty"`
	// Throttles apply to all jobs of their kinds, together with what workers and arguments declare.
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

// ParseConfig reads a Config in YAML or JSON. For unknown fields and invalid values it returns an error that names the line
// or the field. Durations are written as 1h30m.
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
			return c, invalid(errors.New("there is more than one document"))
		}
		if err = prepareNode(&document); err == nil {
			err = document.Load(&c, yaml.WithV3Defaults(), yaml.WithKnownFields())
		}
	}
	if err != nil {
		inFile := strings.NewReplacer("jobs: Action", "action", "jobs: Mode", "mode", "jobs: ", "") // of UnmarshalText methods
		return Config{}, invalid(errors.New(inFile.Replace(err.Error())))
	}
	if _, _, err := c.parse(); err != nil {
		return Config{}, withFileNames(err)
	}
	return c, nil
}

var (
	fieldName    = regexp.MustCompile(`\{[A-Z]\w*\}`)
	innerCapital = regexp.MustCompile(`\B[A-Z]`)
)

// withFileNames returns err with the names that fields have in a file: max_count for MaxCount.
func withFileNames(err error) error {
	o, ok := errors.AsType[*weir.OptionsError](err)
	if !ok {
		return err
	}
	inFile := func(name string) string {
		return strings.ToLower(innerCapital.ReplaceAllString(name, "_$0"))
	}
	for i := range o.Fields {
		f := &o.Fields[i]
		f.Path = inFile(f.Path)
		f.Problem = fieldName.ReplaceAllStringFunc(f.Problem, func(name string) string { return inFile(name[1 : len(name)-1]) })
	}
	return err
}

// prepareNode returns an error for a list element without a value, which the decoder would leave out, so that a limit that
// is only half written would limit nothing, and for a duration without its unit. prepareNode also writes a deadline of -1 as
// a duration; see [Limit].
func prepareNode(n *yaml.Node) error {
	for i, inner := range n.Content {
		if n.Kind == yaml.SequenceNode && inner.ShortTag() == "!!null" {
			return fmt.Errorf("line %d: an element of a list has no value", inner.Line)
		}
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			switch name := n.Content[i-1].Value; {
			case name == "deadline" && inner.Value == "-1":
				inner.SetString("-1ns")
			case (name == "deadline" || name == "interval" || name == "min_delay") && (inner.ShortTag() == "!!int" || inner.ShortTag() == "!!float"):
				return fmt.Errorf("line %d: %s must be a duration with its unit, such as 30s, got %s", inner.Line, name, short(inner.Value))
			}
		}
		if err := prepareNode(inner); err != nil {
			return err
		}
	}
	return nil
}

// definition returns the name and the options that d has, and the field that has the name. ok is false if d is wrong.
func (d Definition) definition(p *validate.Problems) (ref Ref, options limiterOptions, field string, ok bool) {
	found := 0
	var used Definition // the fields of d that belong to the options
	if d.Semaphore != "" {
		found++
		ref.Name, field, options = d.Semaphore, "Semaphore", SemaphoreOptions{MaxCount: d.MaxCount}
		used = Definition{Semaphore: d.Semaphore, MaxCount: d.MaxCount}
	}
	if d.FixedWindow != "" {
		found++
		ref.Name, field, options = d.FixedWindow, "FixedWindow", FixedWindowOptions{Limit: d.Limit, Interval: d.Interval}
		used = Definition{FixedWindow: d.FixedWindow, Limit: d.Limit, Interval: d.Interval}
	}
	if d.SlidingWindow != "" {
		found++
		ref.Name, field, options = d.SlidingWindow, "SlidingWindow", SlidingWindowOptions{Limit: d.Limit, Interval: d.Interval, Buckets: d.Buckets}
		used = Definition{SlidingWindow: d.SlidingWindow, Limit: d.Limit, Interval: d.Interval, Buckets: d.Buckets}
	}
	if d.DynamicWindow != "" {
		found++
		ref.Name, field, options = d.DynamicWindow, "DynamicWindow", DynamicWindowOptions{Limit: d.Limit, Interval: d.Interval,
			Buckets: d.Buckets, Capacity: d.Capacity, MinLimit: d.MinLimit, MaxLimit: d.MaxLimit, MaxKeys: d.MaxKeys, AtOnce: d.AtOnce}
		used = d
		used.MaxCount = 0
	}
	if found != 1 {
		p.Add("", found, "must have one of {Semaphore}, {FixedWindow}, {SlidingWindow} and {DynamicWindow}")
		return ref, nil, "", false
	}
	ref.Type = options.limiterType()
	if used != d {
		p.Add("", nil, "must have only the options of a %s", ref.Type.words())
		return ref, nil, "", false
	}
	return ref, options, field, true
}

// A checkedDefinition is a Definition that has been checked.
type checkedDefinition struct {
	ref     Ref
	options limiterOptions
}

// kindThrottles are the throttles of a Config that have been checked.
type kindThrottles []parsedKindThrottle

type parsedKindThrottle struct {
	kinds []string
	*parsedThrottle
}

// parse checks a configuration.
func (c Config) parse() ([]checkedDefinition, kindThrottles, error) {
	var p validate.Problems
	var definitions []checkedDefinition
	seen := map[Ref]bool{}
	for i, d := range c.Limiters {
		var inner validate.Problems
		if ref, options, field, ok := d.definition(&inner); ok {
			checkName(&inner, field, ref.Name)
			options.check(&inner)
			if seen[ref] {
				inner.Add(field, short(ref.Name), "must not be there twice")
			}
			seen[ref] = true
			definitions = append(definitions, checkedDefinition{ref, options})
		}
		p.Include(fmt.Sprintf("Limiters[%d]", i), inner.Err("jobs"))
	}
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
