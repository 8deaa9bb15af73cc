package waitlist

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
)

func fairList(limits rate.Limits) *List[int] {
	limits.QueueOrder = rate.Fair
	limits.QueueLimit = max(limits.QueueLimit, 1)
	l := new(List[int])
	l.Configure(limits)
	return l
}

func push(l *List[int], t rate.Tenant, permits int) *Waiter[int] {
	w := &Waiter[int]{Permits: permits, Tenant: t}
	l.Push(w)
	return w
}

// serve serves the first waiter.
func serve(t *testing.T, l *List[int]) *Waiter[int] {
	w := l.First()
	require.True(t, l.Serve(w))
	return w
}

// Of tenants that wait all the time, the permits that they get, divided by their weights, differ at most by the largest request of
// each, divided likewise: Golestani's bound, which is below that of deficit round robin, a quantum more.
func TestFair_Bound(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 2))
		l := fairList(rate.Limits{})
		n := 2 + random.IntN(5)
		tenants, largest, got := make([]rate.Tenant, n), make([]float64, n), make([]float64, n)
		request := func(i int) { push(l, tenants[i], 1+random.IntN(int(largest[i]))) }
		for i := range tenants {
			tenants[i] = rate.Tenant{Key: fmt.Sprint(i), Weight: 1 + random.IntN(5)}
			largest[i] = float64(1 + random.IntN(100))
			for range 1 + random.IntN(3) {
				request(i)
			}
		}
		for range 2000 {
			w := serve(t, l)
			i := slices.Index(tenants, w.Tenant)
			request(i)
			got[i] += float64(w.Permits) / float64(w.Tenant.Weight)
			for j := range tenants {
				bound := largest[i]/float64(tenants[i].Weight) + largest[j]/float64(tenants[j].Weight)
				require.LessOrEqual(t, math.Abs(got[i]-got[j]), bound+0.01)
			}
		}
	}
}

// If costs become known only after a while, the bound grows by what is in flight: that of the virtual token counter.
func TestFair_BoundForCostsKnownAfterwards(t *testing.T) {
	const largest, most = 100, 8 // permits of a request, requests in flight
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		l := fairList(rate.Limits{})
		tenants := []rate.Tenant{{Key: "a"}, {Key: "b"}, {Key: "c"}}
		lowest := []int{1, 20, 90} // a's calls can cost little, c's never do
		got := make([]int, len(tenants))
		var inFlight []*Waiter[int]
		for i := range tenants {
			push(l, tenants[i], 10)
			push(l, tenants[i], 10)
		}
		for range 3000 {
			w := serve(t, l)
			push(l, w.Tenant, 10)
			inFlight = append(inFlight, w)
			for len(inFlight) > random.IntN(most)+1 {
				at := random.IntN(len(inFlight))
				w := inFlight[at]
				inFlight = slices.Delete(inFlight, at, at+1)
				i := slices.Index(tenants, w.Tenant)
				cost := lowest[i] + random.IntN(largest-lowest[i]+1)
				l.Correct(w.Tenant, int64(cost-w.Permits))
				got[i] += cost
			}
			require.LessOrEqual(t, slices.Max(got)-slices.Min(got), 2*most*largest)
		}
		require.Greater(t, slices.Min(got), 3000*10/3)
	}
}

// A tenant that has one waiter at a time, which comes right after the one before was served, pays what that one cost too much.
func TestFair_DebtOfATenantThatDoesNotWait(t *testing.T) {
	l := fairList(rate.Limits{})
	cheap, dear := rate.Tenant{Key: "cheap"}, rate.Tenant{Key: "dear"}
	for range 3 {
		push(l, cheap, 1)
	}
	push(l, dear, 1)
	got := map[string]int{}
	for range 2000 {
		w := serve(t, l)
		cost := 1
		if w.Tenant == dear {
			cost = 100
		}
		l.Correct(w.Tenant, int64(cost-1))
		got[w.Tenant.Key] += cost
		push(l, w.Tenant, 1)
	}
	require.InDelta(t, got["cheap"], got["dear"], 101)
	l.Correct(dear, 1<<62)
	l.Correct(cheap, -1<<62)
	require.Equal(t, cheap, serve(t, l).Tenant)
}

// A tenant that was served alone, and whose calls have then cost nothing, does not keep a newcomer waiting.
func TestFair_CreditIsNotHoarded(t *testing.T) {
	l := fairList(rate.Limits{})
	hoarder, newcomer := rate.Tenant{Key: "hoarder"}, rate.Tenant{Key: "newcomer"}
	for range 200 {
		push(l, hoarder, 1000)
	}
	for range 100 {
		serve(t, l)
	}
	for range 100 {
		l.Correct(hoarder, -1000)
	}
	w := push(l, newcomer, 1000)
	for range 2 {
		if serve(t, l) == w {
			return
		}
	}
	require.Fail(t, "it waits for more than one of the other's")
}

// However many keys come, only those with waiters or debts need memory.
func TestFair_Memory(t *testing.T) {
	l := fairList(rate.Limits{})
	for i := range 10 * maxDebtors {
		push(l, rate.Tenant{Key: fmt.Sprint(i)}, 1)
		w := serve(t, l)
		l.Correct(w.Tenant, 5)
	}
	require.LessOrEqual(t, len(l.fair.tenants), maxDebtors)
	for i := range maxDebtors {
		l.Correct(rate.Tenant{Key: fmt.Sprint("early", i)}, 1000)
	}
	require.Len(t, l.fair.tenants, maxDebtors)
	push(l, rate.Tenant{Key: "late"}, 1001)
	serve(t, l)
	l.Correct(rate.Tenant{Key: "new"}, 1)
	require.Len(t, l.fair.tenants, 1, "the debts are over")
}

// A tenant's first waiter is served before any other tenant's second, if they ask for as much.
func TestFair_Newcomer(t *testing.T) {
	l := fairList(rate.Limits{})
	for range 10_000 {
		push(l, rate.Tenant{Key: "many"}, 3)
	}
	for range 17 {
		serve(t, l)
	}
	few := push(l, rate.Tenant{Key: "few"}, 3)
	if serve(t, l) != few {
		require.Same(t, few, serve(t, l))
	}
}

// A reference is the definition of the order, without heaps: what a tenant would finish first is served first.
type reference struct {
	waiters []*Waiter[int]
	start   map[rate.Tenant]int64
	turn    map[rate.Tenant]int
	now     map[int]int64
	turns   int
}

func (r *reference) heads() (heads []*Waiter[int]) {
	seen := map[rate.Tenant]bool{}
	for _, w := range r.waiters {
		if !seen[w.Tenant] {
			seen[w.Tenant] = true
			heads = append(heads, w)
		}
	}
	return heads
}

func (r *reference) finish(w *Waiter[int]) int64 {
	return r.start[w.Tenant] + int64(w.Permits)*unit/int64(w.Tenant.Weight)
}

func (r *reference) first() *Waiter[int] {
	heads := r.heads()
	if len(heads) == 0 {
		return nil
	}
	return slices.MinFunc(heads, func(a, b *Waiter[int]) int {
		if a.Tenant.Priority != b.Tenant.Priority {
			return b.Tenant.Priority - a.Tenant.Priority
		}
		if d := r.finish(a) - r.finish(b); d != 0 {
			return int(d)
		}
		return r.turn[a.Tenant] - r.turn[b.Tenant]
	})
}

func (r *reference) push(w *Waiter[int]) {
	if !slices.ContainsFunc(r.waiters, func(o *Waiter[int]) bool { return o.Tenant == w.Tenant }) {
		r.start[w.Tenant] = r.now[w.Tenant.Priority]
		for _, head := range r.heads() {
			if head.Tenant.Priority == w.Tenant.Priority {
				r.start[w.Tenant] = min(r.start[w.Tenant], r.finish(head))
			}
		}
		r.turns++
		r.turn[w.Tenant] = r.turns
	}
	r.waiters = append(r.waiters, w)
}

func (r *reference) remove(w *Waiter[int], served bool) {
	if served {
		r.start[w.Tenant] = r.finish(w)
		r.now[w.Tenant.Priority] = max(r.now[w.Tenant.Priority], r.start[w.Tenant])
		r.turns++
		r.turn[w.Tenant] = r.turns
	}
	at := slices.Index(r.waiters, w)
	r.waiters = slices.Delete(r.waiters, at, at+1)
}

// room returns how much room those of a tenant take.
func (r *reference) room(t rate.Tenant) (sum int64) {
	for _, w := range r.waiters {
		if w.Tenant == t {
			sum += Weight(w.Permits)
		}
	}
	return sum
}

func TestFair_Reference(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 4))
		limits := rate.Limits{QueueLimit: 5 + random.IntN(60), QueueOrder: rate.Fair, QueueLimitPerTenant: random.IntN(2) * 20}
		l := fairList(limits)
		r := &reference{start: map[rate.Tenant]int64{}, turn: map[rate.Tenant]int{}, now: map[int]int64{}}
		var tenants []rate.Tenant
		for i := range 6 {
			tenants = append(tenants, rate.Tenant{Key: fmt.Sprint(i), Weight: 1 + i%3, Priority: random.IntN(3) - 1})
		}
		for range 400 {
			switch random.IntN(5) {
			case 0:
				if w := l.First(); w != nil {
					l.Serve(w)
					r.remove(w, true)
				}
			case 1:
				if len(r.waiters) > 0 {
					w := r.waiters[random.IntN(len(r.waiters))]
					require.True(t, l.Remove(w))
					require.False(t, l.Remove(w))
					r.remove(w, false)
				}
			default:
				id, n := tenants[random.IntN(len(tenants))], random.IntN(6)
				before := slices.Collect(l.All())
				evicted, ok := l.MakeRoom(n, id)
				if !ok {
					require.Equal(t, len(before), l.length, "who is not let in pushes no one out")
					fits := l.weight+Weight(n) <= l.limit && (l.perTenant == 0 || r.room(id)+Weight(n) <= l.perTenant)
					require.False(t, fits)
					require.False(t, r.room(id) == 0 && Weight(n) == 1 && id.Priority == 1 && len(before) > 1,
						"a tenant of the highest priority without waiters always gets in")
					continue
				}
				for _, w := range evicted {
					require.LessOrEqual(t, w.Tenant.Priority, id.Priority)
					if w.Tenant.Priority == id.Priority {
						require.Greater(t, r.room(w.Tenant)*int64(id.Weight), (r.room(id)+Weight(n))*int64(w.Tenant.Weight))
					}
					r.remove(w, false)
				}
				w := &Waiter[int]{Permits: n, Tenant: id}
				l.Push(w)
				r.push(w)
				require.LessOrEqual(t, l.weight, l.limit)
			}
			require.Equal(t, len(r.waiters), l.length)
			if first := r.first(); first == nil {
				require.True(t, l.Empty())
			} else {
				require.Same(t, first, l.First())
			}
			// All says in which order they would be served.
			later := &reference{slices.Clone(r.waiters), clone(r.start), clone(r.turn), clone(r.now), r.turns}
			for w := range l.All() {
				require.Same(t, later.first(), w)
				later.remove(w, true)
			}
			require.Empty(t, later.waiters)
		}
		// Another order: as they would have been served.
		want := slices.Collect(l.All())
		limits.QueueOrder, limits.QueueLimitPerTenant = rate.OldestFirst, 0
		l.Configure(limits)
		require.True(t, slices.Equal(want, slices.Collect(l.All())))
		limits.QueueOrder = rate.NewestFirst
		l.Configure(limits)
		slices.Reverse(want)
		require.True(t, slices.Equal(want, slices.Collect(l.All())))
	}
}

func clone[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
