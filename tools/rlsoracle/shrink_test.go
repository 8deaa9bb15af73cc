//go:build !js

package rlsoracle

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/proto"
)

// shrunk returns a smaller case for which fails is still true: it takes away what it can, until nothing more can be taken
// away. It asks fails at most some hundred times.
func shrunk(c testCase, fails func(testCase) bool) testCase {
	tries := 0
	try := func(smaller testCase) bool {
		if tries++; tries > 800 || !fails(smaller) {
			return false
		}
		c = smaller
		return true
	}
	for again := true; again && tries <= 800; {
		again = false
		for size := max(1, len(c.steps)/2); size > 0; size /= 2 {
			for i := len(c.steps) - size; i >= 0; i -= size {
				if i+size <= len(c.steps) {
					again = try(testCase{c.rules, without(c.steps, i, size)}) || again
				}
			}
		}
		for i := range c.steps {
			again = shrinkStep(i, c, try, &c) || again
		}
		for _, smaller := range smallerRules(c.rules) {
			if again = try(testCase{smaller, c.steps}); again {
				break
			}
		}
	}
	return c
}

// shrinkStep makes step i smaller. current is where try keeps the smallest case.
func shrinkStep(i int, c testCase, try func(testCase) bool, current *testCase) (smaller bool) {
	change := func(f func(*step)) {
		next := testCase{current.rules, slices.Clone(current.steps)}
		next.steps[i].request = proto.CloneOf(next.steps[i].request)
		f(&next.steps[i])
		if !proto.Equal(next.steps[i].request, current.steps[i].request) || next.steps[i].after != current.steps[i].after {
			smaller = try(next) || smaller
		}
	}
	change(func(s *step) { s.after = 0 })
	change(func(s *step) { s.request.HitsAddend = 0 })
	for j := range slices.Backward(c.steps[i].request.Descriptors) {
		change(func(s *step) {
			if len(s.request.Descriptors) > 1 && j < len(s.request.Descriptors) {
				s.request.Descriptors = without(s.request.Descriptors, j, 1)
			}
		})
		change(func(s *step) {
			if j < len(s.request.Descriptors) {
				s.request.Descriptors[j].HitsAddend = nil
			}
		})
	}
	return smaller
}

// smallerRules returns the rules without each of them, and without each of the properties.
func smallerRules(rules []*domainRules) [][]*domainRules {
	var all [][]*domainRules
	add := func(change func(copied []*domainRules)) {
		copied := copyRules(rules)
		change(copied)
		all = append(all, copied)
	}
	for i, d := range rules {
		if len(rules) > 1 {
			all = append(all, without(rules, i, 1))
		}
		eachRule(d.Descriptors, nil, func(path []int) {
			add(func(c []*domainRules) {
				list := listAt(c[i], path[:len(path)-1])
				*list = without(*list, path[len(path)-1], 1)
			})
			for _, simpler := range simplifications {
				r := ruleAt(d, path)
				if copied := *r; simpler(&copied) {
					add(func(c []*domainRules) { simpler(ruleAt(c[i], path)) })
				}
			}
		})
	}
	return all
}

// simplifications change a rule, and report whether they did.
var simplifications = []func(r *rule) bool{
	func(r *rule) bool { had := r.RateLimit != nil; r.RateLimit = nil; return had },
	func(r *rule) bool { had := r.ShadowMode; r.ShadowMode = false; return had },
	func(r *rule) bool { had := r.QuotaMode; r.QuotaMode = false; return had },
	func(r *rule) bool { had := r.DetailedMetric; r.DetailedMetric = false; return had },
	func(r *rule) bool { had := r.ValueToMetric; r.ValueToMetric = false; return had },
	func(r *rule) bool { had := r.ShareThreshold; r.ShareThreshold = false; return had },
	func(r *rule) bool { had := r.Metadata != nil; r.Metadata = nil; return had },
	func(r *rule) bool {
		had := r.RateLimit != nil && (r.RateLimit.Name != "" || r.RateLimit.Replaces != nil)
		if had {
			limit := *r.RateLimit
			limit.Name, limit.Replaces = "", nil
			r.RateLimit = &limit
		}
		return had
	},
}

// eachRule calls f with the path of each rule: the indices from the domain down.
func eachRule(rules []*rule, path []int, f func(path []int)) {
	for i, r := range rules {
		here := append(slices.Clone(path), i)
		f(here)
		eachRule(r.Descriptors, here, f)
	}
}

func ruleAt(d *domainRules, path []int) *rule {
	return (*listAt(d, path[:len(path)-1]))[path[len(path)-1]]
}

// listAt returns the list in the rule at a path, or that of the domain if path is empty.
func listAt(d *domainRules, path []int) *[]*rule {
	list := &d.Descriptors
	for _, i := range path {
		list = &(*list)[i].Descriptors
	}
	return list
}

func copyRules(rules []*domainRules) []*domainRules {
	var all []*domainRules
	for _, d := range rules {
		all = append(all, &domainRules{d.Domain, copyList(d.Descriptors)})
	}
	return all
}

func copyList(rules []*rule) []*rule {
	var all []*rule
	for _, r := range rules {
		copied := *r
		copied.Descriptors = copyList(r.Descriptors)
		all = append(all, &copied)
	}
	return all
}

// without returns a copy of s without n elements from i on.
func without[T any](s []T, i, n int) []T { return slices.Delete(slices.Clone(s), i, i+n) }

func TestShrunk(t *testing.T) {
	g := &generator{Rand: seeded(1)}
	// A case fails if a request is about the domain "mesh", and a rule has the unit "week".
	fails := func(c testCase) bool {
		asked, week := false, false
		for _, s := range c.steps {
			asked = asked || s.request.Domain == "mesh"
		}
		for _, d := range c.rules {
			eachRule(d.Descriptors, nil, func(path []int) {
				r := ruleAt(d, path)
				week = week || r.RateLimit != nil && r.RateLimit.Unit == "week"
			})
		}
		return asked && week
	}
	shrinks := 0
	for range 300 {
		c := g.testCase()
		if !fails(c) {
			continue
		}
		shrinks++
		small := shrunk(c, fails)
		assert.True(t, fails(small))
		assert.Len(t, small.rules, 1)
		assert.Len(t, small.rules[0].Descriptors, 1)
		if assert.Len(t, small.steps, 1) {
			assert.Len(t, small.steps[0].request.Descriptors, 1)
			assert.Zero(t, small.steps[0].after)
			assert.Equal(t, "mesh", small.steps[0].request.Domain)
			assert.Zero(t, small.steps[0].request.HitsAddend)
		}
	}
	assert.Positive(t, shrinks)
}
