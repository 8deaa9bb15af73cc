package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// mutants are the faults, and the case that must notice each, by the beginning of its name.
var mutants = map[string]struct {
	caught string
	mutant mutant
}{
	"grants one too many": {"what is available is granted", mutant{asks: func(b *backend.Batch) {
		more := *b.Definition
		more.Permits++
		b.Definition = &more
	}}},
	"all or nothing": {"a larger Max takes", mutant{asks: everyAsk(func(_ *backend.Definition, a *backend.Request) { a.Max = min(a.Max, max(a.Min, 1)) })}},
	"zero takes one": {"zero permits are granted while", mutant{asks: everyAsk(func(_ *backend.Definition, a *backend.Request) {
		if a.Op == backend.OpTake && a.Max == 0 {
			a.Max = 1
		}
	})}},
	"lets others pass": {"a request after a rejected one", mutant{asks: everyAsk(func(_ *backend.Definition, a *backend.Request) { a.IfPrevious = false })}},
	"charges what is there": {"a charge is taken even", mutant{asks: everyAsk(func(_ *backend.Definition, a *backend.Request) {
		if a.Op == backend.OpCharge {
			a.Op, a.Min = backend.OpTake, 1
		}
	})}},
	"lends as it takes": {"a block is given back", mutant{asks: everyAsk(func(_ *backend.Definition, a *backend.Request) { a.Block = false })}},
	"refunds loans":     {"a token_bucket answers as the model does, whatever", mutant{after: afterwards(func(_ *backend.Batch, s *backend.State) { s.RefundFloor = 0 })}},
	"returns as it refunds": {"a token_bucket answers as the model does, whatever", mutant{asks: everyAsk(func(_ *backend.Definition, a *backend.Request) {
		if a.Op == backend.OpReturnBlock {
			a.Op = backend.OpRefund
		}
	})}},
	"forgets what lines have paid for": {"a token_bucket answers as the model does, however", mutant{asks: everyAsk(func(_ *backend.Definition, a *backend.Request) {
		if a.Op == backend.OpRefund {
			a.Receipt.Tick = 1 << 40
		}
	})}},
	"refunds to any segment": {"a sliding_window answers as the model does, however", mutant{decide: func(m *Memory, b *backend.Batch) {
		s := b.Definition.InitialState(m.now())
		everyAsk(func(_ *backend.Definition, a *backend.Request) { a.Receipt.Tick = s.Tick })(b)
		m.decide(b)
	}}},
	"a clock that never steps back": {"a fixed_window answers as the model does, however", mutant{decide: func(m *Memory, b *backend.Batch) {
		old, ok := m.states[target{b.Definition.Name, b.Key}]
		m.decide(b)
		if now := b.Definition.InitialState(m.now()); ok && old.Tick > now.Tick {
			b.State.Tick = old.Tick
			m.states[target{b.Definition.Name, b.Key}] = b.State
		}
	}}},
	"knows a line too late": {"a fixed_window answers as the model does, however", mutant{
		asks: func(b *backend.Batch) {
			late := *b.Definition
			late.Anchor++
			b.Definition = &late
		},
		after: afterwards(func(_ *backend.Batch, s *backend.State) { s.Anchor-- }),
	}},
	"drops the oldest segment": {"a state of many segments", mutant{replace: func(_ *Memory, _ target, _, next *backend.State) {
		if len(next.Taken) > 100 {
			next.Taken = next.Taken[1:]
		}
	}}},
	"forgets too early": {"a key is kept until", mutant{decide: func(m *Memory, b *backend.Batch) {
		k := target{b.Definition.Name, b.Key}
		if s, ok := m.states[k]; ok && fullAt(s)-m.now() < 50_000 {
			delete(m.states, k)
		}
		m.decide(b)
	}}},
	"never forgets": {"a key is forgotten when", mutant{after: func(m *Memory, k target, b *backend.Batch) {
		m.states[target{k.name, k.key + "kept"}] = backend.State{Schedule: b.State.Schedule, Tick: b.State.Tick + 1_000_000}
	}}},
	"computes in floats of 32 bits": {"large and small numbers", mutant{after: afterwards(func(_ *backend.Batch, s *backend.State) { s.Missing = int64(float32(s.Missing)) })}},
	"owes without end": {"at most twice the largest", mutant{after: func(_ *Memory, _ target, b *backend.Batch) {
		for i, a := range b.Requests {
			if a.Op == backend.OpCharge {
				b.Granted[i] = a.Max
			}
		}
	}}},
	"keys end at a NUL":              {"keys of any bytes", mutant{key: upToNUL}},
	"keys are valid UTF-8":           {"keys of any bytes", mutant{key: validUTF8}},
	"keys are 255 bytes":             {"keys of any bytes", mutant{key: func(_, key string) string { return key[:min(len(key), 255)] }}},
	"keys are trimmed":               {"keys of any bytes", mutant{key: func(_, key string) string { return strings.TrimSpace(key) }}},
	"keys do not tell the case":      {"keys of any bytes", mutant{key: func(_, key string) string { return strings.ToLower(key) }}},
	"a name and a key run into":      {"names are distinct", mutant{asks: joined}},
	"asks an old state":              {"a state of an older definition", mutant{decide: func(m *Memory, b *backend.Batch) { reversion(m, b); m.decide(b) }}},
	"asks a newer state":             {"nothing is decided by an older definition than", mutant{decide: outdatedToo}},
	"replaces whatever is there":     {"a state that has changed", mutant{replace: func(m *Memory, k target, old, _ *backend.State) { *old = m.states[k] }}},
	"compares what is missing":       {"a state that has changed", mutant{replace: comparesMissing}},
	"compares the sum":               {"a state of many segments", mutant{replace: comparesMissing}},
	"defines over another":           {"a definition is created once", mutant{define: func(m *Memory, old *int64, next *backend.Definition) { *old = inForce(m, next.Name) }}},
	"defines after any version":      {"a definition is replaced only", mutant{define: definesAfterAny}},
	"decides by any definition":      {"nothing is decided by an older definition once", mutant{decide: anyDefinition}},
	"holds by any definition":        {"nothing is decided by an older definition once", mutant{acquire: anyDefinitionHolds}},
	"replaces only the first":        {"many states are replaced in one call", mutant{replace: onlyTheFirst()}},
	"forgets whose limits":           {"a definition is stored with all", mutant{define: func(_ *Memory, _ *int64, next *backend.Definition) { next.Origin = backend.Origin{} }}},
	"forgets what was reached":       {"a definition is stored with all", mutant{define: func(_ *Memory, _ *int64, next *backend.Definition) { next.Reached = false }}},
	"sends no notice of definitions": {"all listeners get a notice of a new", mutant{deaf: func(n backend.Notice) (backend.Notice, bool) { return n, n.Released }}},
	"sends no notice of releases":    {"all listeners get a notice of a release", mutant{deaf: func(n backend.Notice) (backend.Notice, bool) { return n, !n.Released }}},
	"tells no key":                   {"all listeners get a notice of a release", mutant{deaf: func(n backend.Notice) (backend.Notice, bool) { n.Key = ""; return n, true }}},
	"does not hear a context":        {"a context that has ended ends every call", mutant{deadCtx: true}},
	"holds one too many": {"leases never hold more", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) {
		d := h.Definition
		h.Definition = newer(d, func(more *backend.Definition) { more.Version--; more.Permits++ })
		m.acquire(h)
		h.Definition = d
	}}},
	"a zero holds one": {"an Acquire of no permits", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) { h.Permits = max(h.Permits, 1); m.acquire(h) }}},
	"holds twice": {"a lease that is acquired again because the answer was lost is one lease", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) {
		id := h.ID
		m.fence++
		h.ID += time.Now().String()
		m.acquire(h)
		h.ID = id
	}}},
	"holds again until the first end": {"a lease that is acquired again lasts from", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) {
		if i := m.keyLeases(h, m.now()).find(h.ID); i >= 0 && h.Permits > 0 {
			end := m.keyLeases(h, m.now()).leases[i].end
			m.acquire(h)
			m.keyLeases(h, m.now()).leases[i].end = end
			return
		}
		m.acquire(h)
	}}},
	"fences fall":       {"the fences of a key grow", mutant{held: func(_ *Memory, h *backend.LeaseRequest) { h.Fence = 1_000_000 - h.Fence }}},
	"one fence for all": {"the fences of a key grow", mutant{held: func(_ *Memory, h *backend.LeaseRequest) { h.Fence = 1 }}},
	"leases never end":  {"a lease that is not renewed ends", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) { h.TTL *= 1_000_000; m.acquire(h) }}},
	"leases end too soon": {"a lease that is not renewed ends", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) {
		ttl := h.TTL
		h.TTL /= 2
		m.acquire(h)
		h.TTL = ttl
	}}},
	"all leases end at once": {"only the lease ends", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) {
		m.acquire(h)
		kl := m.keyLeases(h, m.now())
		for i := range kl.leases {
			kl.leases[i].end = kl.leases[0].end
		}
	}}},
	"Renew does nothing":    {"a lease that is renewed goes on", mutant{renew: func(_ *Memory, h *backend.LeaseRequest) { h.OK = true }}},
	"Renew raises the dead": {"a lease that is not renewed ends", mutant{renew: func(m *Memory, h *backend.LeaseRequest) { m.acquire(h); h.OK = true }}},
	"Release says always OK": {"a repeated Release", mutant{release: func(m *Memory, h *backend.LeaseRequest) {
		m.withLease(h, m.now(), func(kl *keyLeases, i int) { kl.leases = append(kl.leases[:i], kl.leases[i+1:]...) })
		h.OK = true
	}}},
	"Release frees another's": {"a repeated Release", mutant{release: func(m *Memory, h *backend.LeaseRequest) {
		kl := m.keyLeases(h, m.now())
		i := kl.find(h.ID)
		if h.OK = i >= 0; len(kl.leases) > 0 {
			i = max(i, 0)
			kl.leases = append(kl.leases[:i], kl.leases[i+1:]...)
		}
	}}},
	"goes by the first limit": {"what is held counts under", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) {
		d := h.Definition
		h.Definition = newer(d, func(d *backend.Definition) { d.Permits = 3 })
		m.acquire(h)
		h.Definition = d
	}}},
	"says when a lease ends, not in how long": {"a rejection says when", mutant{held: func(m *Memory, h *backend.LeaseRequest) {
		if h.NextExpiry > 0 {
			h.NextExpiry += m.now()
		}
	}}},
	"holds fewer than none": {"an Acquire of less than 0", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) {
		if m.acquire(h); h.Permits < 0 {
			kl := m.keyLeases(h, m.now())
			kl.leases = append(kl.leases, lease{id: h.ID, permits: h.Permits, end: m.now() + h.TTL, ttl: h.TTL})
		}
	}}},
	"charges less than nothing": {"numbers below 0", mutant{decide: func(m *Memory, b *backend.Batch) {
		m.decide(b)
		for _, a := range b.Requests {
			if k := (target{b.Definition.Name, b.Key}); a.Op == backend.OpCharge && a.Max < 0 && b.State.Missing > 0 {
				b.State.Missing += a.Max
				m.states[k] = b.State
			}
		}
	}}},
	"holds by an older definition": {"nothing is leased by an older definition", mutant{acquire: func(m *Memory, h *backend.LeaseRequest) {
		m.keyLeases(h, m.now()).version = 0
		m.acquire(h)
	}}},
}

// joined takes the name with the key for what a state belongs to.
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

// Every fault is noticed by the case that is about it.
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

// Two who look and then take may meet, or not; they have several chances.
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

func anyDefinitionHolds(m *Memory, h *backend.LeaseRequest) {
	d := m.definitions[h.Definition.Name]
	delete(m.definitions, h.Definition.Name)
	m.acquire(h)
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
