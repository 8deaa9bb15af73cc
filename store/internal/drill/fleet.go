package drill

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// FairShares is the drill: instances wait for permits all the time, and of 1,000 each gets at least
// half its even share.
func FairShares(t *testing.T, s Subject) {
	const permits = 1000
	for _, c := range []struct {
		kind   limitertest.Kind
		limits limitertest.Limits
		work   string
		says   string // the line for each grant
	}{
		{limitertest.TokenBucket, limitertest.Limits{Permits: 10, Period: 25 * time.Millisecond, TokensPerPeriod: 10}, takeForever, "g"},
		{limitertest.FixedWindow, limitertest.Limits{Permits: 40, Period: 100 * time.Millisecond}, takeForever, "g"},
		{limitertest.SlidingWindow, limitertest.Limits{Permits: 40, Period: 100 * time.Millisecond, Segments: 4}, takeForever, "g"},
		{limitertest.Concurrency, limitertest.Limits{Permits: 4}, leaseOn, "h"},
	} {
		for _, processes := range []int{2, 8}[:short(2, 1)] {
			t.Run(fmt.Sprint(processes, " ", c.kind), func(t *testing.T) {
				c.limits.QueueLimit = 1000
				all := startAll(t, same(processes, job{
					Place: s.Place(t), Name: name("fair"), Kind: c.kind, Limits: c.limits,
					Permits: []int{1}, Goroutines: 4, Work: c.work,
				})...)
				for _, p := range all {
					p.await(c.says) // from now on all of them wait
				}
				from := make([]int, processes)
				for i, p := range all {
					from[i] = len(p.linesOf(c.says))
				}
				var got []int
				eventually(t, "so many permits are granted", func() bool {
					got = nil
					sum := 0
					for i, p := range all {
						got = append(got, len(p.linesOf(c.says))-from[i])
						sum += got[i]
					}
					return sum >= permits
				})
				finishAll(all, true)
				if least := slices.Min(got); least < permits/processes/2 {
					t.Errorf("the instances got %v of %d", got, permits)
				}
				t.Logf("the instances got %v", got)
			})
		}
	}
}

// RollingDeployment is the drill: instances with old limits are replaced one by one by such with lower
// ones, while the old ones that have not used the limiter yet do so, and some are started again.
func RollingDeployment(t *testing.T, s Subject) {
	const before, after = 1000, 10
	for _, processes := range []int{2, 8}[:short(2, 1)] {
		for _, k := range []limitertest.Kind{limitertest.TokenBucket, limitertest.FixedWindow, limitertest.SlidingWindow} {
			t.Run(fmt.Sprint(processes, " ", k), func(t *testing.T) {
				program := job{
					Place: s.Place(t), Name: name("rolling"), Kind: k, Permits: []int{1}, Goroutines: 2, Work: takeForever,
					Limits: limitertest.Limits{Permits: before, Period: time.Hour, TokensPerPeriod: 1, Segments: 4, QueueLimit: 100},
				}
				first := must(build(s.store(t, program.Place, store.Options{}), program.Name, k, program.Limits, nil))(t)
				acquire(t, first) // by the old limits
				newer := program
				newer.Limits.Permits = after
				late := prepareAll(t, same(processes/2, program)...)
				var all []*process
				for _, old := range late {
					next := prepareAll(t, newer)
					beginAll(next)
					if len(all) == 0 {
						next[0].await("g") // it has set its limits
					}
					again := prepareAll(t, program)
					beginAll([]*process{old, again[0]})
					for _, p := range []*process{old, again[0]} {
						p.await("o")
					}
					all = append(all, next[0], old, again[0])
				}
				eventually(t, "what there is is taken", func() bool { return granted(all)[0] >= after-1 })
				finishAll(all, true)
				if got := granted(all)[0]; got > after-1 { // the first one has one of them
					t.Errorf("%d granted by limits of %d, of which one was taken", got, after)
				}
				for i, p := range all {
					if told := len(p.linesOf("o")) > 0; told != (i%3 != 0) {
						t.Errorf("instance %d, of which every third is a newer one: overruled %v", i, told)
					}
				}
			})
		}
	}
}
