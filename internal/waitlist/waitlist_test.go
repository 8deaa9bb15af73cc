package waitlist

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
)

// A List behaves as a slice of its waiters does.
func TestList_Model(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		var l List[int]
		var model []*Waiter[int]
		order, limit := rate.QueueOrder(seed%2), 1+random.IntN(20)
		l.Configure(rate.Limits{QueueOrder: order, QueueLimit: limit})
		for i := range 300 {
			switch random.IntN(3) {
			case 0:
				if len(model) == 0 {
					continue
				}
				at := random.IntN(len(model))
				w := model[at]
				model = slices.Delete(model, at, at+1)
				require.True(t, l.Remove(w))
				require.False(t, l.Remove(w))
				require.False(t, w.Listed())
			default:
				w := &Waiter[int]{Permits: random.IntN(5), Value: i}
				var want []*Waiter[int]
				rest := model
				for order == rate.NewestFirst && sum(rest)+Weight(w.Permits) > int64(limit) && len(rest) > 0 {
					want, rest = append(want, rest[0]), rest[1:]
				}
				fits := sum(rest)+Weight(w.Permits) <= int64(limit)
				evicted, ok := l.MakeRoom(w.Permits, w.Tenant)
				require.Equal(t, fits, ok)
				if ok {
					require.True(t, slices.Equal(want, evicted))
					l.Push(w)
					model = append(slices.Clone(rest), w)
				}
			}
			compare(t, &l, model, order)
			if random.IntN(50) == 0 {
				limit = 1 + random.IntN(20)
				l.Configure(rate.Limits{QueueOrder: order, QueueLimit: limit})
			}
		}
		for w := range l.All() {
			l.Remove(w)
		}
		compare(t, &l, nil, order)
	}
}

func sum(all []*Waiter[int]) (weight int64) {
	for _, w := range all {
		weight += Weight(w.Permits)
	}
	return weight
}

func compare(t *testing.T, l *List[int], model []*Waiter[int], order rate.QueueOrder) {
	t.Helper()
	var permits int64
	zeros := 0
	for _, w := range model {
		permits += int64(w.Permits)
		if w.Permits == 0 {
			zeros++
		}
	}
	want := slices.Clone(model)
	if order == rate.NewestFirst {
		slices.Reverse(want)
	}
	require.True(t, slices.Equal(want, slices.Collect(l.All())))
	require.Equal(t, len(model) == 0, l.Empty())
	require.Equal(t, permits, l.Permits())
	require.Equal(t, zeros, l.Zeros())
	require.Equal(t, sum(model), l.weight)
	if len(want) > 0 {
		require.Same(t, want[0], l.First())
	} else {
		require.Nil(t, l.First())
	}
}
