package weirrls

import (
	"bytes"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// A domain is a Domain that is ready for requests.
type domain struct {
	level
	name     string
	override *limit // limits that requests bring with them
}

// A rule is a Descriptor that is ready for requests.
type rule struct {
	level                 // the rules further in
	name           string // the key and the value, joined
	path           string // the names of the rules from the outermost one on
	limit          *limit // nil: only rules further in have limits
	shareThreshold bool
	valueToMetric  bool
	// The events of the limit have values of the descriptor in their names: those of all entries, or those of the entries
	// whose rules have ValueToMetric.
	namesAllValues, namesValues bool
}

// A level has the rules for the entries of one depth.
type level struct {
	rules    map[string]*rule // by their names
	longest  int              // the length of the longest name
	patterns []pattern        // in the order of the file
}

// A pattern is the name of a rule that has a *.
type pattern struct {
	rule  *rule
	parts [][]byte // what stands between the stars: at least two parts
	fixed int      // the length of all parts together
}

// join returns the name that an entry, or a rule with a value, is looked up by. It reuses the memory of buf.
func join(buf []byte, key, value string) []byte {
	buf = append(buf[:0], key...)
	buf = append(buf, '_')
	return append(buf, value...)
}

// ruleName returns the name of a rule.
func ruleName(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

// find returns the rule for an entry, or nil. byPattern reports whether it was found by a pattern. buf is memory for the
// name of the entry.
func (l *level) find(key, value string, buf *[]byte) (found *rule, byPattern bool) {
	if len(key)+1+len(value) <= l.longest || len(l.patterns) > 0 {
		name := join(*buf, key, value)
		*buf = name
		if found = l.rules[string(name)]; found != nil {
			return found, false
		}
		for i := range l.patterns {
			if l.patterns[i].matches(name) {
				return l.patterns[i].rule, true
			}
		}
	}
	return l.rules[key], false
}

// match returns the rule for a descriptor, or nil if no limit applies to it. shares reports whether a ShareThreshold on the
// way replaces a value in the key of the counter.
func (d *domain) match(entries []*common.RateLimitDescriptor_Entry, buf *[]byte) (found *rule, shares bool) {
	at := &d.level
	for i, e := range entries {
		r, byPattern := at.find(e.GetKey(), e.GetValue(), buf)
		if r == nil {
			return nil, false
		}
		shares = shares || byPattern && r.shareThreshold
		if i == len(entries)-1 && r.limit != nil {
			return r, shares
		}
		at = &r.level
	}
	return nil, false
}

// newPattern returns the pattern of a rule whose name has a *.
func newPattern(r *rule) pattern {
	p := pattern{rule: r}
	for part := range strings.SplitSeq(r.name, "*") {
		p.parts = append(p.parts, []byte(part))
		p.fixed += len(part)
	}
	return p
}

// matches reports whether the pattern matches a name. The first and the last part stand at its ends. Each part between
// them is taken where it occurs first, which leaves the most for the parts after it.
func (p *pattern) matches(name []byte) bool {
	first, last := p.parts[0], p.parts[len(p.parts)-1]
	if len(name) < p.fixed || !bytes.HasPrefix(name, first) || !bytes.HasSuffix(name, last) {
		return false
	}
	between := name[len(first) : len(name)-len(last)]
	for _, part := range p.parts[1 : len(p.parts)-1] {
		i := bytes.Index(between, part)
		if i < 0 {
			return false
		}
		between = between[i+len(part):]
	}
	return true
}

// sharedValue returns what stands for the value of an entry in the key of a counter, if the rule that its name matched has
// ShareThreshold: the pattern without the entry's key.
func (r *rule) sharedValue(key string) string {
	if rest, ok := strings.CutPrefix(r.name, key); ok && strings.HasPrefix(rest, "_") {
		return rest[1:]
	}
	return r.name
}
