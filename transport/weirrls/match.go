package weirrls

import (
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weir-go/weir/transport/internal/admission"
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
	// The names of the events of the limit, if they have values of the descriptor: those of all entries, or those of the
	// entries whose rules have ValueToMetric.
	names     *nameSet
	allValues bool
}

// A level has the rules for the entries of one depth.
type level struct {
	rules    map[string]*rule // by their names
	patterns []pattern        // in the order of the file
}

// A pattern is the name of a rule that has a *.
type pattern struct {
	rule  *rule
	parts []string // what stands between the stars: at least two parts
	fixed int      // the length of all parts together
}

// ruleName returns the name of a rule.
func ruleName(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

// find returns the rule for an entry, or nil. byPattern reports whether it was found by a pattern.
func (l *level) find(e *common.RateLimitDescriptor_Entry) (found *rule, byPattern bool) {
	name := e.GetKey() + "_" + e.GetValue()
	if found = l.rules[name]; found != nil {
		return found, false
	}
	for i := range l.patterns {
		if l.patterns[i].matches(name) {
			return l.patterns[i].rule, true
		}
	}
	return l.rules[e.GetKey()], false
}

// match returns the rule for a descriptor, or nil if no limit applies to it, and the key of the counter.
func (d *domain) match(of *common.RateLimitDescriptor) (found *rule, key string) {
	var buf [128]byte
	k := buf[:0]
	at := &d.level
	for i, e := range of.GetEntries() {
		r, byPattern := at.find(e)
		if r == nil {
			return nil, ""
		}
		k = appendEntry(k, e.GetKey(), r.counterValue(e, byPattern))
		if i == len(of.GetEntries())-1 && r.limit != nil {
			return r, string(k)
		}
		at = &r.level
	}
	return nil, ""
}

// counterValue returns the value of an entry in the key of a counter. All values that a pattern with ShareThreshold
// matches have one.
func (r *rule) counterValue(e *common.RateLimitDescriptor_Entry, byPattern bool) string {
	if byPattern && r.shareThreshold {
		return r.sharedValue(e.GetKey())
	}
	return e.GetValue()
}

// keyOf returns the key of the counter of a descriptor: the entries as key=value, separated by commas. Keys of different
// entries differ, because a backslash stands before each character that could be mistaken.
func keyOf(d *common.RateLimitDescriptor) string {
	var k []byte
	for _, e := range d.GetEntries() {
		k = appendEntry(k, e.GetKey(), e.GetValue())
	}
	return string(k)
}

func appendEntry(k []byte, key, value string) []byte {
	if len(k) > 0 {
		k = append(k, ',')
	}
	k = appendEscaped(k, key, `\,=`)
	k = append(k, '=')
	return appendEscaped(k, value, `\,`)
}

// appendEscaped appends text with a backslash before each of the special characters.
func appendEscaped(k []byte, text, special string) []byte {
	for {
		i := strings.IndexAny(text, special)
		if i < 0 {
			return append(k, text...)
		}
		k = append(k, text[:i]...)
		k = append(k, '\\', text[i])
		text = text[i+1:]
	}
}

// counterKey returns the key of a counter, which is one of those of all domains.
func (d *domain) counterKey(key string) string {
	var buf [128]byte
	k := append(appendEscaped(buf[:0], d.name, `\,`), ',')
	return admission.BoundedKey(string(append(k, key...)))
}

// newPattern returns the pattern of a rule whose name has a *.
func newPattern(r *rule) pattern {
	p := pattern{rule: r}
	for part := range strings.SplitSeq(r.name, "*") {
		p.parts = append(p.parts, part)
		p.fixed += len(part)
	}
	return p
}

// matches reports whether the pattern matches a name. The first and the last part stand at its ends. Each part between
// them is taken where it occurs first, which leaves the most for the parts after it.
func (p *pattern) matches(name string) bool {
	first, last := p.parts[0], p.parts[len(p.parts)-1]
	if len(name) < p.fixed || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	between := name[len(first) : len(name)-len(last)]
	for _, part := range p.parts[1 : len(p.parts)-1] {
		i := strings.Index(between, part)
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
