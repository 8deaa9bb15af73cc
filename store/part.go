package store

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// A part is what a [Store] has of one part of its backend: the circuit breaker, and the round trips. A slow part
// does not hold up questions about the keys of another one.
type part struct {
	name  string // "" for a backend that is one part, and for keys of which the part is not known
	guard guard
	calls [lanes]lane[*call]
	holds [lanes]lane[*holding]

	repairs [lanes]lane[*undecided] // what could not be decided because a limiter was reconfigured
}

func (s *Store) newPart(name string) *part {
	p := &part{name: name}
	p.guard.s, p.guard.p = s, p
	for i := range lanes {
		p.calls[i].rests, p.repairs[i].rests, p.holds[i].rests = s.settles, s.settles, s.settles
		p.calls[i].timeout, p.calls[i].fly, p.calls[i].lost = s.o.CallTimeout, s.decide, s.lostCalls
		p.repairs[i].timeout, p.repairs[i].fly, p.repairs[i].lost = s.o.CallTimeout, s.mend, s.lostRepairs
		p.holds[i].timeout, p.holds[i].fly, p.holds[i].lost = s.o.CallTimeout, s.carry, s.lostHoldings
	}
	return p
}

func (p *part) quiet() bool {
	for i := range lanes {
		if !p.calls[i].quiet() || !p.repairs[i].quiet() || !p.holds[i].quiet() {
			return false
		}
	}
	return true
}

// parts are those of a Store. The zero parts has none but the whole.
type parts struct {
	whole  *part
	of     func(name, key string) string // nil: the backend is one part
	m      sync.Map                      // name -> *part, those that have one
	mu     sync.Mutex                    // held while m is changed
	number int                           // of parts in m
}

const (
	// mostParts bounds how many parts have a health of their own. The keys of further ones share that of
	// the whole.
	mostParts = 1024
	// crowded is how many parts there are when those that no key is in any more are looked for: servers
	// that are replaced have new addresses.
	crowded = 64
)

// partOf returns the part that a key of the limiter is in. The key "" stands for the definition, too.
func (s *Store) partOf(name, key string) *part {
	if s.parts.of == nil {
		return s.parts.whole
	}
	in := s.nameOfPart(name, key)
	if in == "" {
		return s.parts.whole
	}
	if p, ok := s.parts.m.Load(in); ok {
		return p.(*part)
	}
	return s.addPart(in)
}

// nameOfPart asks the backend. One that panics has not said.
func (s *Store) nameOfPart(name, key string) (in string) {
	recovered.Call("store: PartOf", func() { in = s.parts.of(name, key) })
	return in
}

func (s *Store) addPart(name string) *part {
	s.parts.mu.Lock()
	defer s.parts.mu.Unlock()
	if p, ok := s.parts.m.Load(name); ok {
		return p.(*part)
	}
	if s.parts.number >= crowded {
		s.forgetParts()
	}
	if s.parts.number >= mostParts {
		return s.parts.whole
	}
	name = strings.Clone(name)
	p := s.newPart(name)
	s.parts.m.Store(name, p)
	s.parts.number++
	return p
}

// forgetParts forgets the parts that have no keys any more. One that is away is forgotten by its probe.
func (s *Store) forgetParts() {
	live := map[string]bool{}
	for name, key := range probes {
		live[s.nameOfPart(name, key)] = true
	}
	for p := range s.eachPart {
		if p != s.parts.whole && !live[p.name] && p.guard.err() == nil && p.quiet() {
			s.parts.m.Delete(p.name)
			s.parts.number--
		}
	}
}

// forgetPart is for a part of which the probe has found no key any more.
func (s *Store) forgetPart(p *part) {
	s.parts.mu.Lock()
	defer s.parts.mu.Unlock()
	if s.parts.m.CompareAndDelete(p.name, p) {
		s.parts.number--
	}
}

// eachPart calls f for every part, the whole first.
func (s *Store) eachPart(f func(*part) bool) {
	if !f(s.parts.whole) {
		return
	}
	s.parts.m.Range(func(_, p any) bool { return f(p.(*part)) })
}

// probes yields the names and keys that a probe may ask about: so many that some of them are in every part
// that has more than a few of ten thousand keys.
func probes(yield func(name, key string) bool) {
	for i := range 128 {
		name := probed.Name
		if i > 0 {
			name += "/" + strconv.Itoa(i)
		}
		for j := range 128 {
			if !yield(name, strconv.Itoa(j)) {
				return
			}
		}
	}
}

// probeOf returns the definition and the key of a question that the part has to answer; false if no key was found
// that is in it.
func (s *Store) probeOf(p *part) (*backend.Definition, string, bool) {
	if s.parts.of == nil {
		return probed, "", true
	}
	for name, key := range probes {
		if s.nameOfPart(name, key) == p.name {
			d := *probed
			d.Name = name
			return &d, key, true
		}
	}
	return nil, "", false
}

// ShardHealth says whether one part of a store is there; see [backend.Sharded].
type ShardHealth struct {
	Shard string    // its name
	Err   error     // nil: the part is there; else why it counts as away
	Since time.Time // since when the part is away
}

// healthOfParts returns how the parts are, sorted by name. The whole is among them while it is away.
func (s *Store) healthOfParts() []ShardHealth {
	all := map[string]ShardHealth{}
	for p := range s.eachPart {
		if h := p.health(); p != s.parts.whole || h.Err != nil {
			all[p.name] = h
		}
	}
	sorted := make([]ShardHealth, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[name])
	}
	return sorted
}

func (p *part) health() ShardHealth {
	h := ShardHealth{Shard: p.name}
	if o := p.guard.away.Load(); o != nil {
		h.Err, h.Since = o.err, o.since
	}
	return h
}
