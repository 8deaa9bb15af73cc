//go:build !js

package rlsoracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A testCase is what both services are asked.
type testCase struct {
	rules []*domainRules
	steps []step
}

// A step is a request, and the time that passes before it.
type step struct {
	after   time.Duration
	request *ratelimitv3.RateLimitRequest
}

// String returns the case as a reader of a failure needs it.
func (c testCase) String() string {
	var b strings.Builder
	for i, d := range c.rules {
		fmt.Fprintf(&b, "# rules, file %d\n%s", i+1, d.file())
	}
	for i, s := range c.steps {
		if s.after > 0 {
			fmt.Fprintf(&b, "# %v pass\n", s.after)
		}
		fmt.Fprintf(&b, "# request %d\n%s\n", i+1, prototext.Format(s.request))
	}
	return b.String()
}

// A generator makes cases at random. Small alphabets make rules and requests meet.
type generator struct {
	*rand.Rand
	// still is true for cases in real time: no time passes between requests, and all units are long.
	still bool
}

// Keys and values have no "_", by which the other server joins them: see TestExceptions.
var (
	keys     = []string{"a", "b", "c"}
	values   = []string{"x", "x/1", "x/2/z", "y", "x/*", "*", ""}
	patterns = []string{"", "", "x", "y", "x/1", "x/*", "x*", "*"}
	names    = []string{"one", "two", "three"}
	lengths  = []string{"second", "second", "minute", "minute", "hour", "day", "week", "month", "year", "Minute", "HOUR"}
)

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

// chance reports true in one of n cases.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func (g *generator) testCase() testCase {
	c := testCase{rules: []*domainRules{{Domain: "edge", Descriptors: g.rules(3)}}}
	if g.chance(3) {
		c.rules = append(c.rules, &domainRules{Domain: "mesh", Descriptors: g.rules(2)})
	}
	for range 5 + g.IntN(25) {
		c.steps = append(c.steps, step{after: g.pause(), request: g.request(c.rules)})
	}
	// Requests come again: limits are reached.
	for range len(c.steps) {
		again := c.steps[g.IntN(len(c.steps))]
		c.steps = append(c.steps, step{after: g.pause(), request: again.request})
	}
	return c
}

// pause returns mostly nothing: the requests are in one window.
func (g *generator) pause() time.Duration {
	switch {
	case g.still || !g.chance(8):
		return 0
	case g.chance(3):
		return time.Duration(g.IntN(90)) * time.Second
	case g.chance(4):
		return time.Duration(g.IntN(60*24)) * time.Hour
	default:
		return time.Duration(g.IntN(1500)) * time.Millisecond
	}
}

func (g *generator) rules(depth int) []*rule {
	var all []*rule
	for range 1 + g.IntN(4) {
		r := &rule{Key: pick(g, keys), Value: pick(g, patterns)}
		if slices.ContainsFunc(all, func(other *rule) bool { return other.Key == r.Key && other.Value == r.Value }) {
			continue
		}
		if depth > 1 && g.chance(2) {
			r.Descriptors = g.rules(depth - 1)
		}
		if len(r.Descriptors) == 0 || g.chance(2) {
			r.RateLimit = g.rateLimit()
			if g.chance(12) {
				r.RateLimit = nil // exempts a value
			}
		}
		r.ShadowMode, r.QuotaMode = g.chance(8), g.chance(6)
		r.DetailedMetric, r.ValueToMetric = g.chance(8), g.chance(8)
		r.ShareThreshold = strings.HasSuffix(r.Value, "*") && g.chance(2)
		all = append(all, r)
	}
	return all
}

func (g *generator) rateLimit() *rateLimit {
	l := &rateLimit{}
	if g.chance(2) {
		l.Name = pick(g, names)
	}
	for _, name := range names {
		if name != l.Name && g.chance(8) {
			l.Replaces = append(l.Replaces, replaced{name})
		}
	}
	if g.chance(10) {
		l.Unlimited = true
		return l
	}
	l.Unit, l.RequestsPerUnit = pick(g, lengths), uint32(g.IntN(7))
	if g.still {
		l.Unit = pick(g, []string{"hour", "day", "week", "month", "year"})
	}
	return l
}

func (g *generator) request(rules []*domainRules) *ratelimitv3.RateLimitRequest {
	d := pick(g, rules)
	r := &ratelimitv3.RateLimitRequest{Domain: d.Domain}
	if g.chance(20) {
		r.Domain = "unknown"
	}
	if g.chance(3) {
		r.HitsAddend = uint32(g.IntN(5))
	}
	for range 1 + g.IntN(4) {
		r.Descriptors = append(r.Descriptors, g.descriptor(d))
		if g.chance(10) {
			r.Descriptors = append(r.Descriptors, pick(g, r.Descriptors))
		}
	}
	return r
}

func (g *generator) descriptor(d *domainRules) *commonv3.RateLimitDescriptor {
	var entries []*commonv3.RateLimitDescriptor_Entry
	level := d.Descriptors
	for len(level) > 0 {
		r := pick(g, level)
		entry := &commonv3.RateLimitDescriptor_Entry{Key: r.Key, Value: g.value(r.Value)}
		entries = append(entries, entry)
		level = r.Descriptors
		if r.RateLimit != nil && g.chance(2) {
			break
		}
	}
	if g.chance(12) || len(entries) == 0 { // deeper than the rules
		entries = append(entries, &commonv3.RateLimitDescriptor_Entry{Key: pick(g, keys), Value: pick(g, values)})
	}
	descriptor := &commonv3.RateLimitDescriptor{Entries: entries}
	if g.chance(4) {
		descriptor.HitsAddend = wrapperspb.UInt64(uint64(g.IntN(5)))
	}
	if g.chance(15) {
		descriptor.Limit = g.override(descriptor)
	}
	return descriptor
}

// value returns one that may match the value of a rule.
func (g *generator) value(pattern string) string {
	if pattern == "" || g.chance(6) {
		return pick(g, values)
	}
	return strings.ReplaceAll(pattern, "*", pick(g, []string{"1", "2/z", "", "*"}))
}

// override returns the limit that a descriptor brings with it. Its entries have a last one of their own, because the other
// server counts the hits of a rule and of an override, and those of overrides in different units, in one counter at times:
// see TestExceptions.
func (g *generator) override(d *commonv3.RateLimitDescriptor) *commonv3.RateLimitDescriptor_RateLimitOverride {
	unit := typev3.RateLimitUnit(1 + g.IntN(6))
	if g.still {
		unit = max(unit, typev3.RateLimitUnit_HOUR)
	}
	d.Entries = append(slices.Clone(d.Entries), &commonv3.RateLimitDescriptor_Entry{Key: "override", Value: unit.String()})
	return &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(g.IntN(5)), Unit: unit}
}
