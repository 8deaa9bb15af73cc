package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// mutants are the faults, and the case that must notice each, by the beginning of its name.
var mutants = map[string]struct {
	caught string
	mutant mutant
}{
	"grants one too many": {"what is available is granted", mutant{before: func(b *backend.Batch) {
		more := *b.Definition
		more.Permits++
		b.Definition = &more
	}}},
	"all or nothing": {"a larger Max takes", mutant{before: everyRequest(func(r *backend.Request) { r.Max = min(r.Max, max(r.Min, 1)) })}},
	"zero takes one": {"zero permits are granted while", mutant{before: everyRequest(func(r *backend.Request) {
		if r.Op == backend.OpTake && r.Max == 0 {
			r.Max = 1
		}
	})}},
	"ignores IfPrevious": {"a request after a rejected one", mutant{before: everyRequest(func(r *backend.Request) { r.IfPrevious = false })}},
	"charges what is there": {"a charge is taken even", mutant{before: everyRequest(func(r *backend.Request) {
		if r.Op == backend.OpCharge {
			r.Op, r.Min = backend.OpTake, 1
		}
	})}},
	"takes blocks like other permits": {"a block is given back", mutant{before: everyRequest(func(r *backend.Request) { r.Block = false })}},
	"refunds blocks":                  {"a token_bucket answers as the model does, whatever", mutant{afterDecide: afterwards(func(s *rate.State) { s.Floor = 0 })}},
	"gives back nothing without a grant": {"permits of no grant", mutant{before: everyRequest(func(r *backend.Request) {
		if r.Op == backend.OpGiveBack {
			r.Max = 0
		}
	})}},
	"forgets what was refunded": {"a refund gives back no more than lines", mutant{afterDecide: afterwards(func(s *rate.State) { s.Refunded = 0 })}},
	"returns blocks like refunds": {"a token_bucket answers as the model does, whatever", mutant{before: everyRequest(func(r *backend.Request) {
		if r.Op == backend.OpReturnBlock {
			r.Op = backend.OpRefund
		}
	})}},
	"forgets what lines have brought back": {"a token_bucket answers as the model does, however", mutant{before: everyRequest(func(r *backend.Request) {
		if r.Op == backend.OpRefund {
			r.Receipt.Line = 1 << 40
		}
	})}},
	"refunds to any segment": {"a sliding_window answers as the model does, however", mutant{decide: func(m *Memory, b *backend.Batch) {
		line := b.Definition.LineAt(m.now())
		everyRequest(func(r *backend.Request) { r.Receipt.Line = line })(b)
		m.decide(b)
	}}},
	"a clock that never steps back": {"a fixed_window answers as the model does, however", mutant{decide: func(m *Memory, b *backend.Batch) {
		old, ok := m.states[target{b.Definition.Name, b.Key}]
		m.decide(b)
		if ok && old.Line > b.Definition.LineAt(m.now()) {
			b.State.Line = old.Line
			m.states[target{b.Definition.Name, b.Key}] = b.Definition.Stored(b.State)
		}
	}}},
	"sees a line 10 ms too late": {"a fixed_window answers as the model does, however", mutant{before: func(b *backend.Batch) {
		late := *b.Definition
		late.Anchor += 10_000
		b.Definition = &late
	}}},
	"drops the oldest segment": {"a state of many segments", mutant{replace: func(_ *Memory, _ target, _, next *backend.State) {
		if len(next.Segments) > 100 {
			next.Segments = next.Segments[1:]
		}
	}}},
	"forgets too early": {"a key is kept until", mutant{decide: func(m *Memory, b *backend.Batch) {
		k := target{b.Definition.Name, b.Key}
		if s, ok := m.states[k]; ok && fullAt(s)-m.now() < 50_000 {
			delete(m.states, k)
		}
		m.decide(b)
	}}},
	"never forgets": {"a key is forgotten when", mutant{afterDecide: func(m *Memory, k target, b *backend.Batch) {
		m.states[target{k.name, k.key + "kept"}] = b.Definition.Stored(rate.State{Line: b.State.Line + 1_000_000})
	}}},
	"computes in floats of 32 bits": {"large and small numbers", mutant{afterDecide: afterwards(func(s *rate.State) { s.Missing = int64(float32(s.Missing)) })}},
	"charges without a bound": {"at most twice the largest", mutant{afterDecide: func(_ *Memory, _ target, b *backend.Batch) {
		for i, r := range b.Requests {
			if r.Op == backend.OpCharge {
				b.Granted[i] = r.Max
			}
		}
	}}},
	"keys end at a NUL":              {"keys of any bytes", mutant{key: upToNUL}},
	"keys are valid UTF-8":           {"keys of any bytes", mutant{key: validUTF8}},
	"keys are 255 bytes":             {"keys of any bytes", mutant{key: func(_, key string) string { return key[:min(len(key), 255)] }}},
	"keys are trimmed":               {"keys of any bytes", mutant{key: func(_, key string) string { return strings.TrimSpace(key) }}},
	"keys ignore the case":           {"keys of any bytes", mutant{key: func(_, key string) string { return strings.ToLower(key) }}},
	"a name and a key are joined":    {"names are distinct", mutant{before: joined}},
	"decides by an old state":        {"a state of an older definition", mutant{decide: func(m *Memory, b *backend.Batch) { reversion(m, b); m.decide(b) }}},
	"decides by a newer state":       {"nothing is decided by an older definition than", mutant{decide: outdatedToo}},
	"replaces whatever is there":     {"a state that has changed", mutant{replace: func(m *Memory, k target, old, _ *backend.State) { *old = m.states[k] }}},
	"compares what is missing":       {"a state that has changed", mutant{replace: comparesMissing}},
	"compares the sum":               {"a state of many segments", mutant{replace: comparesMissing}},
	"defines over another":           {"a definition is created once", mutant{define: func(m *Memory, old *int64, next *backend.Definition) { *old = inForce(m, next.Name) }}},
	"defines after any version":      {"a definition is replaced only", mutant{define: definesAfterAny}},
	"decides by any definition":      {"nothing is decided by an older definition once", mutant{decide: anyDefinition}},
	"leases by any definition":       {"nothing is decided by an older definition once", mutant{acquire: leasesByAnyDefinition}},
	"replaces only the first":        {"many states are replaced in one call", mutant{replace: onlyTheFirst()}},
	"forgets the terms":              {"a definition is stored with all", mutant{define: func(_ *Memory, _ *int64, next *backend.Definition) { next.Terms = "" }}},
	"forgets what was reached":       {"a definition is stored with all", mutant{define: func(_ *Memory, _ *int64, next *backend.Definition) { next.AnchorInForce = false }}},
	"sends no notice of definitions": {"all listeners get a notice of a new", mutant{notice: func(n backend.Notice) (backend.Notice, bool) { return n, n.Released }}},
	"sends no notice of releases":    {"all listeners get a notice of a release", mutant{notice: func(n backend.Notice) (backend.Notice, bool) { return n, !n.Released }}},
	"sends no key with notices":      {"all listeners get a notice of a release", mutant{notice: func(n backend.Notice) (backend.Notice, bool) { n.Key = ""; return n, true }}},
	"ignores contexts":               {"a context that has ended ends every call", mutant{deadCtx: true}},
	"leases one too many": {"leases never hold more", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) {
		d := r.Definition
		r.Definition = newer(d, func(more *backend.Definition) { more.Version--; more.Permits++ })
		m.acquire(r)
		r.Definition = d
	}}},
	"a zero leases one": {"an Acquire of no permits", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) { r.Permits = max(r.Permits, 1); m.acquire(r) }}},
	"leases twice": {"a lease that is acquired again because the answer was lost is one lease", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) {
		id := r.ID
		m.fence++
		r.ID += time.Now().String()
		m.acquire(r)
		r.ID = id
	}}},
	"leases again until the first end": {"a lease that is acquired again lasts from", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) {
		if i := m.keyLeases(r, m.now()).find(r.ID); i >= 0 && r.Permits > 0 {
			end := m.keyLeases(r, m.now()).leases[i].end
			m.acquire(r)
			m.keyLeases(r, m.now()).leases[i].end = end
			return
		}
		m.acquire(r)
	}}},
	"fences fall":       {"the fences of a key grow", mutant{afterAcquire: func(_ *Memory, r *backend.LeaseRequest) { r.Fence = 1_000_000 - r.Fence }}},
	"one fence for all": {"the fences of a key grow", mutant{afterAcquire: func(_ *Memory, r *backend.LeaseRequest) { r.Fence = 1 }}},
	"leases never end":  {"a lease that is not renewed ends", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) { r.TTL *= 1_000_000; m.acquire(r) }}},
	"leases end too soon": {"a lease that is not renewed ends", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) {
		ttl := r.TTL
		r.TTL /= 2
		m.acquire(r)
		r.TTL = ttl
	}}},
	"all leases end at once": {"a lease that expires does not end", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) {
		m.acquire(r)
		kl := m.keyLeases(r, m.now())
		for i := range kl.leases {
			kl.leases[i].end = kl.leases[0].end
		}
	}}},
	"Renew does nothing":    {"a lease that is renewed goes on", mutant{renew: func(_ *Memory, r *backend.LeaseRequest) { r.OK = true }}},
	"Renew raises the dead": {"a lease that is not renewed ends", mutant{renew: func(m *Memory, r *backend.LeaseRequest) { m.acquire(r); r.OK = true }}},
	"Release says always OK": {"a repeated Release", mutant{release: func(m *Memory, r *backend.LeaseRequest) {
		m.withLease(r, m.now(), func(kl *keyLeases, i int) { kl.leases = append(kl.leases[:i], kl.leases[i+1:]...) })
		r.OK = true
	}}},
	"Release frees another's": {"a repeated Release", mutant{release: func(m *Memory, r *backend.LeaseRequest) {
		kl := m.keyLeases(r, m.now())
		i := kl.find(r.ID)
		if r.OK = i >= 0; len(kl.leases) > 0 {
			i = max(i, 0)
			kl.leases = append(kl.leases[:i], kl.leases[i+1:]...)
		}
	}}},
	"goes by the first limit": {"what is held counts under", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) {
		d := r.Definition
		r.Definition = newer(d, func(d *backend.Definition) { d.Permits = 3 })
		m.acquire(r)
		r.Definition = d
	}}},
	"says when a lease ends, not in how long": {"a rejection says when", mutant{afterAcquire: func(m *Memory, r *backend.LeaseRequest) {
		if r.NextExpiry > 0 {
			r.NextExpiry += m.now()
		}
	}}},
	"leases fewer than none": {"an Acquire of less than 0", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) {
		if m.acquire(r); r.Permits < 0 {
			kl := m.keyLeases(r, m.now())
			kl.leases = append(kl.leases, lease{id: r.ID, permits: r.Permits, end: m.now() + r.TTL, ttl: r.TTL})
		}
	}}},
	"charges less than nothing": {"numbers below 0", mutant{decide: func(m *Memory, b *backend.Batch) {
		m.decide(b)
		for _, r := range b.Requests {
			if k := (target{b.Definition.Name, b.Key}); r.Op == backend.OpCharge && r.Max < 0 && b.State.Missing > 0 {
				b.State.Missing += r.Max
				m.states[k] = b.Definition.Stored(b.State)
			}
		}
	}}},
	"leases by an older definition": {"nothing is leased by an older definition", mutant{acquire: func(m *Memory, r *backend.LeaseRequest) {
		m.keyLeases(r, m.now()).version = 0
		m.acquire(r)
	}}},
}

// joined moves the end of the name into the key.
func joined(b *backend.Batch) {
	i := strings.LastIndexByte(b.Definition.Name, '-') + 13 // the suite's own part of the name
	rest := b.Definition.Name[min(i, len(b.Definition.Name)):]
	d := *b.Definition
	d.Name = d.Name[:len(d.Name)-len(rest)]
	b.Definition, b.Key = &d, rest+":"+b.Key
}

func reversion(m *Memory, b *backend.Batch) {
	k := target{b.Definition.Name, b.Key}
	if s, ok := m.states[k]; ok && s.Version < b.Definition.Version {
		s.Version = b.Definition.Version
		m.states[k] = s
	}
}

func outdatedToo(m *Memory, b *backend.Batch) {
	k := target{b.Definition.Name, b.Key}
	if s, ok := m.states[k]; ok && s.Version > b.Definition.Version {
		s.Version = b.Definition.Version
		m.states[k] = s
	}
	m.decide(b)
}

// comparesMissing takes a state for another that has the same sum.
func comparesMissing(m *Memory, k target, old, _ *backend.State) {
	if s, ok := m.states[k]; ok && s.Missing == old.Missing {
		*old = s
	}
}

func inForce(m *Memory, name string) int64 {
	if d := m.definitions[name]; d != nil {
		return d.Version
	}
	return 0
}

func definesAfterAny(m *Memory, old *int64, next *backend.Definition) {
	if v := inForce(m, next.Name); v != 0 && *old != 0 {
		*old = v
	}
}

// checkOne runs the case whose name begins so, and returns what failed.
func checkOne(t *testing.T, s Subject, name string) (failures []string, ok bool) {
	t.Helper()
	for _, c := range cases() {
		if strings.HasPrefix(c.name, name) && c.appliesTo(s) {
			return c.check(t, s), true
		}
	}
	return nil, false
}

// TestRun_FindsEveryFault checks that each fault is noticed by the case that is about it.
func TestRun_FindsEveryFault(t *testing.T) {
	for fault, m := range mutants {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			failures, ok := checkOne(t, m.mutant.subject(), m.caught)
			if !ok {
				t.Fatalf("there is no case %q", m.caught)
			}
			if len(failures) == 0 {
				t.Errorf("%q passes a Backend that %s", m.caught, fault)
			}
		})
	}
}

// A Backend that reads and writes in two steps fails only if two calls overlap, so it gets several tries.
func TestRun_FindsARace(t *testing.T) {
	for _, name := range []string{"no permit of a key is granted twice", "calls about overlapping sets"} {
		noticed := false
		for try := 0; try < 20 && !noticed; try++ {
			failures, _ := checkOne(t, mutant{racy: true}.subject(), name)
			noticed = len(failures) > 0
		}
		if !noticed {
			t.Errorf("%q passes a Backend that looks and takes in two steps", name)
		}
	}
}

// anyDefinition decides a key without a state also by an older definition.
func anyDefinition(m *Memory, b *backend.Batch) {
	d := m.definitions[b.Definition.Name]
	delete(m.definitions, b.Definition.Name)
	m.decide(b)
	if d != nil {
		m.definitions[d.Name] = d
	}
}

func leasesByAnyDefinition(m *Memory, r *backend.LeaseRequest) {
	d := m.definitions[r.Definition.Name]
	delete(m.definitions, r.Definition.Name)
	m.acquire(r)
	if d != nil {
		m.definitions[d.Name] = d
	}
}

// onlyTheFirst spoils all replacements of a limiter but the first.
func onlyTheFirst() func(*Memory, target, *backend.State, *backend.State) {
	seen := map[string]string{}
	return func(_ *Memory, k target, old, _ *backend.State) {
		if first, ok := seen[k.name]; ok && first != k.key {
			old.Missing += 1000
		} else {
			seen[k.name] = k.key
		}
	}
}
