package drill

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/tools/stopwatch"
)

// granted returns what the instances were granted, by key.
func granted(all []*process) map[int64]int64 {
	sums := map[int64]int64{}
	for _, p := range all {
		for _, l := range p.linesOf("g") {
			if len(l.args) == 3 { // else killed in the middle of a line
				sums[l.args[0]] += l.args[1]
			}
		}
	}
	return sums
}

// A shareCase is a case of shares.
type shareCase struct {
	name      string
	kind      limitertest.Kind
	processes int
	keys      int // 0: not partitioned
	limit     int // of each key
	permits   []int
	options   store.LimiterOptions
	kills     int // how many instances are killed meanwhile
}

// goroutines is how many calls each instance has under way.
const goroutines = 8

func shareCases() []shareCase {
	one := []int{1}
	keys := short(2000, 500)
	blocks := func(most int) store.LimiterOptions { return store.LimiterOptions{Block: most} }
	all := []shareCase{
		{name: "two, one key", kind: limitertest.TokenBucket, processes: 2, limit: 4000, permits: []int{3, 2, 1}},
		{name: "eight, many keys", kind: limitertest.TokenBucket, processes: 8, keys: keys, limit: 2, permits: one},
		{name: "sliding", kind: limitertest.SlidingWindow, processes: 2, keys: 50, limit: 50, permits: []int{2, 1}},
		{name: "killed, blocks", kind: limitertest.TokenBucket, processes: 4, limit: 40_000, permits: one, options: blocks(100), kills: 2},
		{name: "eight, one key", kind: limitertest.FixedWindow, processes: 8, limit: 4000, permits: one},
		{name: "two, many keys", kind: limitertest.FixedWindow, processes: 2, keys: keys, limit: 2, permits: one},
		{name: "rejections remembered", kind: limitertest.TokenBucket, processes: 8, keys: 100, limit: 20, permits: one, options: store.LimiterOptions{CacheRejections: true}},
		{name: "blocks, one key", kind: limitertest.TokenBucket, processes: 8, limit: 20_000, permits: one, options: blocks(100)},
		{name: "blocks, many keys", kind: limitertest.FixedWindow, processes: 2, keys: 100, limit: 100, permits: []int{3, 1}, options: blocks(10)},
		{name: "killed, one key", kind: limitertest.FixedWindow, processes: 4, limit: 20_000, permits: one, kills: 2},
	}
	return all[:short(len(all), 4)]
}

// shares tests limiters to which no permits come back. Several instances take permits until nothing is left, and
// together get all of them.
func shares(t *testing.T, s Subject) {
	for _, c := range shareCases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

func (c shareCase) run(t *testing.T, s Subject) {
	each := goroutines * min(c.processes, 4)
	all := startAll(t, c.processes, job{
		Place: s.Place(t), Name: uniqueName("share"), Kind: c.kind, Options: c.options, Keys: c.keys, Permits: c.permits,
		Limits:     limitertest.Limits{Permits: c.limit, Period: time.Hour, TokensPerPeriod: 1, Segments: 4},
		Goroutines: each, Work: takeAll,
	})
	for _, p := range all[:c.kills] {
		eventually(t, "it has some of its permits", func() bool { return len(p.linesOf("g")) > c.limit/100 })
		p.kill()
	}
	finishAll(all, false)

	got := granted(all)
	// A killed instance can keep two blocks, one that it was about to return and one that it has fetched, and the permits of calls
	// that have not written their line. On a busy machine one answer with a block can be lost.
	least := int64(c.limit - c.options.Block - c.kills*(2*c.options.Block+each))
	keys, sum, wrong := max(c.keys, 1), int64(0), 0
	for key := range int64(keys) {
		sum += got[key]
		switch n := got[key]; {
		case n >= least && n <= int64(c.limit), wrong == 10:
			continue
		case n > int64(c.limit):
			t.Errorf("key %d: %d granted, limit %d", key, n, c.limit)
		default: // on a busy machine an answer can be lost, and its permits with it
			t.Errorf("key %d: only %d granted, at least %d expected", key, n, least)
		}
		wrong++
	}
	t.Logf("%d of %d permits of %d keys granted to %d instances", sum, keys*c.limit, keys, c.processes)
}

// fairShares tests that of 1,000 permits for which instances wait all the time, each instance gets half of an even share at least.
func fairShares(t *testing.T, s Subject) {
	stopwatch.Only(t)
	const permits = 1000
	for _, c := range []struct {
		kind   limitertest.Kind
		limits limitertest.Limits
		work   string
		grants string // the lines for grants
	}{
		{limitertest.TokenBucket, limitertest.Limits{Permits: 10, Period: 25 * time.Millisecond, TokensPerPeriod: 10}, takeForever, "g"},
		{limitertest.FixedWindow, limitertest.Limits{Permits: 40, Period: 100 * time.Millisecond}, takeForever, "g"},
		{limitertest.SlidingWindow, limitertest.Limits{Permits: 40, Period: 100 * time.Millisecond, Segments: 4}, takeForever, "g"},
		{limitertest.Concurrency, limitertest.Limits{Permits: 4}, leaseForever, "h"},
	} {
		for _, processes := range []int{2, 8}[:short(2, 1)] {
			t.Run(fmt.Sprint(processes, " ", c.kind), func(t *testing.T) {
				c.limits.QueueLimit = 1000
				all := startAll(t, processes, job{
					Place: s.Place(t), Name: uniqueName("fair"), Kind: c.kind, Limits: c.limits,
					Permits: []int{1}, Goroutines: 4, Work: c.work,
				})
				for _, p := range all {
					p.await(c.grants) // from now on all of them wait
				}
				from, got := make([]int, processes), make([]int, processes)
				for i, p := range all {
					from[i] = len(p.linesOf(c.grants))
				}
				eventually(t, "so many permits are granted", func() bool {
					sum := 0
					for i, p := range all {
						got[i] = len(p.linesOf(c.grants)) - from[i]
						sum += got[i]
					}
					return sum >= permits
				})
				finishAll(all, true)
				if slices.Min(got) < permits/processes/2 {
					t.Errorf("the instances got %v of %d", got, permits)
				}
				t.Logf("the instances got %v", got)
			})
		}
	}
}
