package weirrls

import (
	"strings"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
)

// The bounds on names of events that have values of descriptors. Clients choose those values, and a backend of metrics keeps
// every name.
const (
	maxValueNames   = 1000 // for a rule
	maxValueNameLen = 256  // in bytes
)

// A nameSet has the names that were used for the events of a rule.
type nameSet struct {
	mu    sync.RWMutex
	names map[string]string
}

// intern returns the name as a string, or "" if there are too many others.
func (s *nameSet) intern(name []byte) string {
	s.mu.RLock()
	known, ok := s.names[string(name)]
	full := len(s.names) >= maxValueNames
	s.mu.RUnlock()
	if ok || full {
		return known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.names[string(name)]; ok || len(s.names) >= maxValueNames {
		return known
	}
	if s.names == nil {
		s.names = make(map[string]string)
	}
	own := string(name)
	s.names[own] = own
	return own
}

// namesOf returns the sets of names for the rules that need one. Rules that were in force before keep theirs, so that
// reloads do not raise the number of names.
func namesOf(rules *Rules, before *rulesInForce) map[*rule]*nameSet {
	old := make(map[string]*nameSet)
	if before != nil {
		for _, d := range before.rules.domains {
			d.each(func(r *rule) {
				if s := before.names[r]; s != nil {
					old[d.name+"\x00"+r.path] = s
				}
			})
		}
	}
	names := make(map[*rule]*nameSet)
	for _, d := range rules.domains {
		d.each(func(r *rule) {
			if !r.namesAllValues && !r.namesValues || r.limit == nil {
				return
			}
			s := old[d.name+"\x00"+r.path]
			if s == nil {
				s = new(nameSet)
			}
			names[r] = s
		})
	}
	return names
}

// each calls f with each rule of the level, and of the levels further in.
func (l *level) each(f func(*rule)) {
	for _, r := range l.rules {
		f(r)
		r.each(f)
	}
}

// nameWithValues returns the name of the events of c with the values of its descriptor.
func (d *decision) nameWithValues(c *check, entries []*common.RateLimitDescriptor_Entry) string {
	var buf [maxValueNameLen]byte
	name := d.appendName(buf[:0], c.rule, entries)
	if len(name) > maxValueNameLen {
		return c.rule.path
	}
	if known := d.rules.names[c.rule].intern(name); known != "" {
		return known
	}
	return c.rule.path
}

// appendName appends the path of the rule leaf, with the values of the entries that have one in the name.
func (d *decision) appendName(name []byte, leaf *rule, entries []*common.RateLimitDescriptor_Entry) []byte {
	at := &d.domain.level
	for i, e := range entries {
		key, value := e.GetKey(), e.GetValue()
		r, byPattern := at.find(key, value, &d.buf)
		if r == nil {
			break // cannot happen: the descriptor was matched
		}
		switch {
		case byPattern && r.shareThreshold, byPattern && !r.valueToMetric && !leaf.namesAllValues:
			value = r.sharedValue(key)
		case !byPattern && !r.valueToMetric && !leaf.namesAllValues && !strings.HasPrefix(r.name, key+"_"):
			value = "" // a rule without a value
		}
		if i > 0 {
			name = append(name, '.')
		}
		name = append(name, key...)
		if value != "" {
			name = append(append(name, '_'), value...)
		}
		if len(name) > maxValueNameLen {
			break
		}
		at = &r.level
	}
	return name
}
