package waitlist

import (
	"container/heap"
	"slices"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/rate"
)

// fair has the waiters of each tenant in a line of its own, and serves the lines by self-clocked fair queueing: S. J. Golestani, "A
// Self-Clocked Fair Queueing Scheme for Broadband Applications", INFOCOM 1994. A waiter would finish at the virtual time at which
// the one before it of the same tenant finishes, or now, plus its permits divided by the tenant's weight. The waiter that would
// finish first is served first, and then its finish is now. So of two tenants that wait all the time, the permits that they get,
// divided by their weights, never differ by more than the largest request of each, divided likewise.
//
// What a served waiter has really cost can be known later; see correct. So the bound also holds for costs that are not known before:
// Y. Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.
//
// A tenant without waiters needs no memory: it would finish no later than now. It is remembered as a debtor only if it has cost more
// than was known when it was served.
type fair[V any] struct {
	tenants map[tenantKey]*tenant[V]
	next    [rate.Priorities]tenants[V] // those with waiters, by priority; the first of the last that is not empty is served first
	longest tenants[V]                  // those with waiters; the first gives way first
	now     [rate.Priorities]int64      // in the virtual time of a priority
	turns   uint64
}

// A tenant has waiters, or debts.
type tenant[V any] struct {
	rate.Tenant
	line[V]
	start int64  // the virtual time at which the service of the oldest waiter would begin
	turn  uint64 // of several that would finish at the same time, the first by turn is served first
	at    [2]int // the places in next and longest
}

// unit is a virtual second: the service of a permit of a tenant of weight 1.
const unit = 1 << 20

// maxDebtors bounds the memory for tenants without waiters. Debts of more tenants are forgiven.
const maxDebtors = 1024

func newFair[V any]() *fair[V] {
	f := &fair[V]{
		tenants: map[tenantKey]*tenant[V]{},
		longest: tenants[V]{place: 1, before: (*tenant[V]).givesWayBefore},
	}
	for class := range f.next {
		f.next[class].before = (*tenant[V]).finishesBefore
	}
	return f
}

// keyOf returns the key of a tenant in the map.
func keyOf(t rate.Tenant) tenantKey { return tenantKey{t.Key, t.Class()} }

type tenantKey struct {
	key   string
	class int
}

// service returns how long permits take the tenant, in virtual time.
func (t *tenant[V]) service(permits int64) int64 {
	return max(min(permits, 1<<40), -1<<40) * unit / int64(t.Share())
}

func (t *tenant[V]) finish() int64 { return t.start + t.service(int64(t.oldest.Permits)) }

// finishesBefore reports whether t is served before u, which has the same priority. Virtual times wrap around.
func (t *tenant[V]) finishesBefore(u *tenant[V]) bool {
	if d := t.finish() - u.finish(); d != 0 {
		return d < 0
	}
	return t.turn < u.turn
}

// givesWayBefore reports whether a waiter of t leaves a full queue before one of u.
func (t *tenant[V]) givesWayBefore(u *tenant[V]) bool {
	if t.Class() != u.Class() {
		return t.Class() < u.Class()
	}
	return float64(t.weight)*float64(u.Share()) > float64(u.weight)*float64(t.Share())
}

// tenantOf returns the tenant, which is made if it is new.
func (f *fair[V]) tenantOf(id rate.Tenant) *tenant[V] {
	t := f.tenants[keyOf(id)]
	if t == nil {
		t = &tenant[V]{start: f.begin(id.Class())}
		f.tenants[keyOf(id)] = t
	}
	t.Tenant = id
	return t
}

// begin returns the virtual time at which the service of a newcomer begins: now or, if who is first would have finished before because
// its calls have cost less than was known, when it finishes.
func (f *fair[V]) begin(class int) int64 {
	now := f.now[class]
	if all := f.next[class].all; len(all) > 0 {
		now += min(all[0].finish()-now, 0)
	}
	return now
}

func (f *fair[V]) first() *Waiter[V] {
	for _, next := range slices.Backward(f.next[:]) {
		if len(next.all) > 0 {
			return next.all[0].oldest
		}
	}
	return nil
}

// roomOf returns how much room the waiters of a tenant take.
func (f *fair[V]) roomOf(id rate.Tenant) int64 {
	if f == nil || f.tenants[keyOf(id)] == nil {
		return 0
	}
	return f.tenants[keyOf(id)].weight
}

func (f *fair[V]) push(w *Waiter[V]) {
	t := f.tenantOf(w.Tenant)
	if t.oldest == nil {
		f.setTurn(t)
		begin := f.begin(t.Class())
		t.start = begin + max(t.start-begin, 0)
	}
	f.add(t, w)
}

// add makes w the newest waiter of t.
func (f *fair[V]) add(t *tenant[V], w *Waiter[V]) {
	isNew := t.oldest == nil
	t.push(w)
	if isNew {
		heap.Push(&f.next[t.Class()], t)
		heap.Push(&f.longest, t)
	} else {
		f.fix(t)
	}
}

func (f *fair[V]) setTurn(t *tenant[V]) {
	f.turns++
	t.turn = f.turns
}

// fix restores the order of the heaps after t has changed.
func (f *fair[V]) fix(t *tenant[V]) {
	heap.Fix(&f.next[t.Class()], t.at[0])
	heap.Fix(&f.longest, t.at[1])
}

// take takes out w, which is served or has left.
func (f *fair[V]) take(w *Waiter[V], served bool) {
	t := f.tenants[keyOf(w.Tenant)]
	t.remove(w)
	if served {
		t.start += t.service(int64(w.Permits))
		now := &f.now[t.Class()]
		*now += max(t.start-*now, 0)
		f.setTurn(t)
	}
	if t.oldest != nil {
		f.fix(t)
		return
	}
	heap.Remove(&f.next[t.Class()], t.at[0])
	heap.Remove(&f.longest, t.at[1])
	f.forget(t)
}

// forget forgets a tenant without waiters, unless it has debts.
func (f *fair[V]) forget(t *tenant[V]) {
	if t.oldest == nil && t.start-f.now[t.Class()] <= 0 {
		delete(f.tenants, keyOf(t.Tenant))
	}
}

// correct notes that a waiter of a tenant that was served has cost that many permits more.
func (f *fair[V]) correct(id rate.Tenant, more int64) {
	if f.tenants[keyOf(id)] == nil {
		if more <= 0 {
			return
		}
		if f.debtors() >= maxDebtors {
			for _, t := range f.tenants {
				f.forget(t)
			}
		}
		if f.debtors() >= maxDebtors {
			return
		}
	}
	t := f.tenantOf(id)
	now := f.now[t.Class()]
	t.start = now + min(max(t.start-now+t.service(more), -farthest), farthest)
	if t.oldest != nil {
		f.fix(t)
	}
}

// farthest bounds the difference of a virtual time from now, so that it does not overflow.
const farthest = 1 << 61

// debtors returns how many tenants without waiters there are.
func (f *fair[V]) debtors() int { return len(f.tenants) - len(f.longest.all) }

// all yields the waiters in the order in which they would be served.
func (f *fair[V]) all(yield func(*Waiter[V]) bool) {
	later := fair[V]{turns: f.turns}
	for _, next := range slices.Backward(f.next[:]) {
		next.all = slices.Clone(next.all)
		for i, t := range next.all {
			c := *t
			next.all[i] = &c
		}
		for len(next.all) > 0 {
			t := next.all[0]
			w := t.oldest
			t.start, t.oldest = t.finish(), w.newer
			later.setTurn(t)
			if t.oldest == nil {
				heap.Pop(&next)
			} else {
				heap.Fix(&next, 0)
			}
			if !yield(w) {
				return
			}
		}
	}
}

// makeRoomFairly is MakeRoom for the order Fair: the newest waiter of the tenant that has most, for its weight, gives way, as long as
// that tenant has more than the newcomer's would have. Tenants of lower priority give way to those of a higher one.
func (l *List[V]) makeRoomFairly(room int64, n int, id rate.Tenant) (evicted []*Waiter[V], ok bool) {
	newcomer := &tenant[V]{Tenant: id, line: line[V]{weight: saturate.Add(l.fair.roomOf(id), Weight(n))}}
	if l.perTenant > 0 && newcomer.weight > l.perTenant {
		return nil, false
	}
	var from []*tenant[V]
	for l.weight > room {
		t := l.fair.longest.all[0]
		if !t.givesWayBefore(newcomer) { // all stay
			for i, w := range slices.Backward(evicted) {
				l.fair.tenants[keyOf(w.Tenant)] = from[i]
				l.fair.add(from[i], w)
				l.count(w, 1)
			}
			return nil, false
		}
		evicted, from = append(evicted, t.newest), append(from, t)
		l.Remove(t.newest)
	}
	return evicted, true
}

// Correct notes that what a waiter of a tenant was served has cost that many permits more, or fewer.
func (l *List[V]) Correct(t rate.Tenant, more int64) {
	if l.fair != nil {
		l.fair.correct(t, more)
	}
}

// tenants is a heap of tenants.
type tenants[V any] struct {
	all    []*tenant[V]
	place  int // which of the two heaps it is
	before func(a, b *tenant[V]) bool
}

func (h *tenants[V]) Len() int           { return len(h.all) }
func (h *tenants[V]) Less(i, j int) bool { return h.before(h.all[i], h.all[j]) }

func (h *tenants[V]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.all[i].at[h.place], h.all[j].at[h.place] = i, j
}

func (h *tenants[V]) Push(x any) {
	t := x.(*tenant[V])
	t.at[h.place] = len(h.all)
	h.all = append(h.all, t)
}

func (h *tenants[V]) Pop() any {
	last := len(h.all) - 1
	t := h.all[last]
	h.all[last], h.all = nil, h.all[:last]
	return t
}
