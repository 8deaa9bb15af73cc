package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/jobs/internal/window"
)

// second is a second in µs.
const second = int64(1_000_000)

func rulesOf(limit int64, interval time.Duration, buckets int64) window.Rules {
	return window.Rules{Bucket: interval.Microseconds() / buckets, Buckets: buckets, Limit: limit}
}

func mustRead(t testing.TB, state string, r window.Rules, now int64) *window.Window {
	all, err := window.Read(map[string]string{"": state}, r, now)
	require.NoError(t, err, "%q", state)
	return all[""]
}

// A memory keeps what the tables keep, for tests of decisions without a database. It reads and writes as database.load
// and database.save do, and derives from its own rows of jobs who still holds what.
type memory struct {
	t           testing.TB
	now         int64 // µs, the database's clock
	fence       int64
	room        int
	lease       int64
	keys        []*memoryKey // by ID, from 1
	ids         map[Ref]int64
	holders     map[holderID]*memoryHolder
	waiters     map[waiterID]waiter
	running     map[int64]time.Time // jobs, and since when
	final       map[int64]bool
	broughtBack []int64
	limits      map[Ref]rules // without key
	batch       *batch        // the last one
	changed     bool          // lengths of buckets: until a place lapses, it and its job can be in different ones
}

type memoryKey struct {
	id, limiter int64
	ref         Ref
	state       string
	hold        int64
	waiting     int64
}

type memoryHolder struct {
	holderRow
	acquired int64
	until    int64 // 0: none
}

func newMemory(t testing.TB) *memory {
	t.Helper()
	return &memory{
		t: t, now: 1_700_006_400 * second, lease: 30 * second, ids: map[Ref]int64{}, holders: map[holderID]*memoryHolder{}, waiters: map[waiterID]waiter{},
		running: map[int64]time.Time{}, final: map[int64]bool{}, limits: map[Ref]rules{},
	}
}

func (m *memory) set(d Definition) Ref {
	require.Empty(m.t, wrong(d))
	ref, _ := d.name(&validate.Problems{})
	m.limits[ref] = d.rules(ref.Type)
	return ref
}

func (m *memory) rulesOf(ref Ref) rules {
	if ref.Type == Mutex {
		return rules{maxCount: 1}
	}
	return m.limits[Ref{Type: ref.Type, Name: ref.Name}]
}

func (m *memory) id(ref Ref) int64 {
	if m.ids[ref] == 0 {
		key := &memoryKey{id: int64(len(m.keys) + 1), ref: ref}
		key.limiter = key.id
		m.keys, m.ids[ref] = append(m.keys, key), key.id
		if ref.Type == DynamicWindow && ref.Key != "" {
			key.limiter = m.id(Ref{Type: ref.Type, Name: ref.Name})
		}
	}
	return m.ids[ref]
}

func (m *memory) key(ref Ref) *memoryKey { return m.keys[m.id(ref)-1] }

func (m *memory) mutex(name string) need     { return need{ref: Ref{Type: Mutex, Name: name}} }
func (m *memory) semaphore(name string) need { return need{ref: Ref{Type: Semaphore, Name: name}} }
func (m *memory) fixed(name string) need     { return need{ref: Ref{Type: FixedWindow, Name: name}} }
func (m *memory) sliding(name string) need   { return need{ref: Ref{Type: SlidingWindow, Name: name}} }

func (m *memory) dynamic(name, key string) need {
	return need{ref: Ref{Type: DynamicWindow, Name: name, Key: key}}
}

// job returns what a job that starts now asks.
func (m *memory) job(id int64, needs ...need) *request {
	req := &request{job: id, attempted: time.UnixMicro(m.now), snoozes: true, needs: slices.Clone(needs)}
	for i := range req.needs {
		n := &req.needs[i]
		if n.owner == "" {
			n.owner = ownerOf(id, "")
		}
		n.id = m.id(n.ref)
		if n.ref.Type == DynamicWindow {
			n.dynamicRow = m.id(Ref{Type: n.ref.Type, Name: n.ref.Name})
		}
	}
	m.running[id] = req.attempted
	delete(m.final, id)
	return req
}

// ask decides about a job that starts now.
func (m *memory) ask(id int64, needs ...need) *request {
	req := m.job(id, needs...)
	m.decide(req)
	return req
}

// end ends the run of a job. What it holds in relaxed mode is released, as by the batcher; in strict mode if final.
func (m *memory) end(req *request, final bool) {
	delete(m.running, req.job)
	m.final[req.job] = final
	if req.decision.leased {
		m.release(req)
	}
}

func (m *memory) release(req *request) {
	for s, h := range m.holders {
		if h.Job == req.job && h.Attempted.Equal(req.attempted) && h.Mode == relaxedRow {
			m.learn(h, m.now)
			delete(m.holders, s)
		}
	}
}

func (m *memory) learn(h *memoryHolder, now int64) {
	s := slots{measuredHold: m.keys[h.Key-1].hold}
	s.learnHold(now - h.acquired)
	m.keys[h.Key-1].hold = s.measuredHold
}

func (m *memory) live(h *memoryHolder) bool {
	switch h.Mode {
	case relaxedRow:
		at, ok := m.running[h.Job]
		return ok && at.Equal(h.Attempted) && h.until > m.now
	case strictRow:
		return !m.final[h.Job]
	}
	return h.until == 0 || h.until > m.now
}

// decide runs a batch as a transaction does.
func (m *memory) decide(reqs ...*request) {
	b := m.load(reqs)
	b.decide(reqs, m.lease)
	m.finish(b)
}

// recheck looks at a mutex or a semaphore as janitor.lookAfterWaiters does.
func (m *memory) recheck(n need) {
	n.id = m.id(n.ref)
	m.finish(m.load([]*request{{job: -1, needs: []need{n}}}))
}

func (m *memory) finish(b *batch) {
	for _, w := range b.toBringBack() {
		b.setWake(w, b.now)
		m.broughtBack = append(m.broughtBack, w.Job)
	}
	m.save(b)
}

// load makes of the rows what database.load makes of them.
func (m *memory) load(reqs []*request) *batch {
	b, stored, ofKeys := newBatch(m.now), storedRows{}, map[int64][]waiter{}
	b.fence, b.handOverRoom = m.fence, m.room
	jobs, asked := map[int64]bool{}, map[int64]bool{}
	eachNeed(reqs, func(req *request, n *need) {
		jobs[req.job], asked[n.id] = true, true
		if id := cmp.Or(n.dynamicRow, n.id); b.rows[id] == nil {
			b.rows[id] = m.row(id)
		}
	})
	for p, w := range m.waiters {
		if jobs[p.Job] {
			stored.ofJobs = append(stored.ofJobs, w)
		}
		if asked[p.Key] {
			ofKeys[p.Key] = append(ofKeys[p.Key], w)
		}
	}
	for _, h := range m.holders {
		if asked[h.Key] {
			stored.holders = append(stored.holders, readHolder{holderID: h.holderID, Mode: h.Mode, Live: m.live(h), Acquired: h.acquired})
		}
	}
	for _, key := range m.keys {
		if key.ref.Type == DynamicWindow && key.ref.Key != "" && b.rows[key.limiter] != nil && (key.state != "" || asked[key.id]) {
			stored.dynamic = append(stored.dynamic, dynamicKey{ID: key.id, Limiter: key.limiter, Key: key.ref.Key, State: key.state})
		}
	}
	for _, ws := range ofKeys {
		slices.SortFunc(ws, func(a, b waiter) int { return cmp.Compare(a.Job, b.Job) })
		stored.waiters = append(stored.waiters, ws[:min(len(ws), maxWaiters)]...)
	}
	b.prepare(stored)
	return b
}

func (m *memory) row(id int64) *keyRow {
	key := m.keys[id-1]
	r := &keyRow{id: id, limiter: key.limiter, ref: key.ref, rules: m.rulesOf(key.ref), state: key.state}
	if key.ref.Type.hasSlots() {
		r.slots = &slots{limit: r.rules.maxCount, measuredHold: key.hold, waiting: key.waiting, owners: map[string]int64{}}
		r.keptOwners = map[string]int64{}
	}
	return r
}

func (m *memory) save(b *batch) {
	m.batch, m.fence = b, b.fence
	for id, row := range b.rows {
		key := m.keys[id-1]
		if s := row.slots; s != nil && s.changed {
			key.hold, key.waiting = s.measuredHold, s.waiting
		}
		if row.window != nil && row.window.Changed {
			key.state = row.window.String()
		}
	}
	for _, id := range b.deadRows {
		delete(m.holders, id)
	}
	for s, h := range b.granted {
		row := &memoryHolder{holderRow: h, acquired: m.now}
		if old := m.holders[s]; old != nil {
			row.acquired = old.acquired
		}
		if h.Until > 0 {
			row.until = m.now + h.Until
		}
		m.holders[s] = row
	}
	for p := range b.removedWaiters {
		delete(m.waiters, p)
	}
	maps.Copy(m.waiters, b.savedWaiters)
}

// check checks what is true after each transaction.
func (m *memory) check() {
	waiting := map[int64]int64{}
	reserved := map[waiterID]int64{} // key and bucket
	for p, w := range m.waiters {
		waiting[p.Key]++
		if w.Bucket >= 0 {
			r := m.rulesOf(m.keys[p.Key-1].ref).window
			at, now := w.Bucket/r.Bucket, m.now/r.Bucket
			if lapsed := m.now >= now*r.Bucket+window.LapseAfter(r.Bucket); at > now || at == now && !lapsed {
				reserved[waiterID{p.Key, at}]++
			}
		}
	}
	for _, key := range m.keys {
		if key.ref.Type.hasSlots() && key.waiting != waiting[key.id] {
			require.Failf(m.t, "wrong count", "%v has %d waiting, and %d rows", key.ref, key.waiting, waiting[key.id])
		}
		if key.ref.Type.hasSlots() {
			continue
		}
		w := mustRead(m.t, key.state, m.rulesOf(key.ref).window, m.now)
		for _, b := range w.Filled {
			if jobs := reserved[waiterID{key.id, b.At}]; b.Reserved != jobs && !m.changed {
				require.Failf(m.t, "wrong reservations", "%v has %d reserved in bucket now%+d for %d jobs", key.ref, b.Reserved, b.At-m.now/w.Bucket, jobs)
			}
			delete(reserved, waiterID{key.id, b.At})
		}
	}
	if len(reserved) > 0 && !m.changed {
		require.Failf(m.t, "places that no window has", "%v", reserved)
	}
	owners := map[int64]map[string]bool{}
	for _, h := range m.holders {
		if m.live(h) {
			if owners[h.Key] == nil {
				owners[h.Key] = map[string]bool{}
			}
			owners[h.Key][h.Owner] = true
		}
	}
	for id, o := range owners {
		ref := m.keys[id-1].ref
		if int64(len(o)) > m.rulesOf(ref).maxCount {
			require.Failf(m.t, "held by too many", "%v is held by %v", ref, o)
		}
	}
}

// describe lists rows, for comparisons.
func (m *memory) describe() (rows []string) {
	for _, key := range m.keys {
		rows = append(rows, fmt.Sprintf("%v %q waiting %d", key.ref, key.state, key.waiting))
	}
	for s, h := range m.holders {
		rows = append(rows, fmt.Sprintf("%v held by %q, job %d, mode %d until %d", m.keys[s.Key-1].ref, s.Owner, s.Job, h.Mode, h.until))
	}
	for p, w := range m.waiters {
		rows = append(rows, fmt.Sprintf("%v waited for by %d: %+v", m.keys[p.Key-1].ref, p.Job, w))
	}
	slices.Sort(rows)
	return rows
}
