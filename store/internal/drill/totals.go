package drill

import (
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
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

// A share is how instances take what there is until nothing is left. Nothing comes back meanwhile.
type share struct {
	name      string
	kind      limitertest.Kind
	processes int
	keys      int // 0: not partitioned
	limit     int // of each key
	permits   []int
	how       store.LimiterOptions
	blocks    bool // permits in blocks at the end can be missing
	kills     int  // how many instances are killed in the middle
}

// goroutines is how many calls each instance has under way.
const goroutines = 8

func shares() []share {
	one := []int{1}
	keys := short(10_000, 500)
	all := []share{
		{name: "two, one key", kind: limitertest.TokenBucket, processes: 2, limit: 4000, permits: []int{3, 2, 1}},
		{name: "eight, one key", kind: limitertest.FixedWindow, processes: 8, limit: 4000, permits: one},
		{name: "two, many keys", kind: limitertest.FixedWindow, processes: 2, keys: keys, limit: 2, permits: one},
		{name: "eight, many keys", kind: limitertest.TokenBucket, processes: 8, keys: keys, limit: 2, permits: one},
		{name: "sliding", kind: limitertest.SlidingWindow, processes: 2, keys: 50, limit: 50, permits: []int{2, 1}},
		{name: "not coalesced", kind: limitertest.TokenBucket, processes: 2, limit: 1000, permits: one, how: store.LimiterOptions{NoCoalescing: true}},
		{name: "rejections remembered", kind: limitertest.TokenBucket, processes: 8, keys: 100, limit: 20, permits: one, how: store.LimiterOptions{CacheRejections: true}},
		{name: "blocks, one key", kind: limitertest.TokenBucket, processes: 8, limit: 20_000, permits: one, how: store.LimiterOptions{Block: 100}, blocks: true},
		{name: "blocks, many keys", kind: limitertest.FixedWindow, processes: 2, keys: 100, limit: 100, permits: []int{3, 1}, how: store.LimiterOptions{Block: 10}, blocks: true},
		{name: "killed, one key", kind: limitertest.FixedWindow, processes: 4, limit: 20_000, permits: one, kills: 2},
		{name: "killed, blocks", kind: limitertest.TokenBucket, processes: 4, limit: 40_000, permits: one, how: store.LimiterOptions{Block: 100}, blocks: true, kills: 2},
	}
	return all
}

// Shares has instances take all there is, and counts.
func Shares(t *testing.T, s Subject) {
	for _, sh := range shares() {
		t.Run(sh.name, func(t *testing.T) { sh.run(t, s) })
	}
}

func (sh share) run(t *testing.T, s Subject) {
	all := startAll(t, same(sh.processes, job{
		Place: s.Place(t), Name: name("share"), Kind: sh.kind, How: sh.how, Keys: sh.keys, Permits: sh.permits,
		Limits:     limitertest.Limits{Permits: sh.limit, Period: time.Hour, TokensPerPeriod: 1, Segments: 4},
		Goroutines: goroutines * min(sh.processes, 4), Work: takeAll,
	})...)
	for i := range sh.kills {
		eventually(t, "it is in the middle", func() bool { return len(all[i].linesOf("g")) > sh.limit/20 })
		if len(all[i].linesOf("done")) > 0 {
			t.Error("it was done before it could be killed")
		}
		all[i].kill()
	}
	finishAll(all, false)
	sh.judge(t, granted(all))
}

func (sh share) judge(t *testing.T, got map[int64]int64) {
	keys := max(sh.keys, 1)
	least := int64(sh.limit)
	if sh.blocks {
		least -= int64(sh.processes * sh.how.Block)
	}
	least -= int64(sh.kills * goroutines * min(sh.processes, 4)) // calls under way
	sum, wrong := int64(0), 0
	for key := range int64(keys) {
		sum += got[key]
		if got[key] > int64(sh.limit) || got[key] < least {
			if wrong++; wrong < 10 {
				t.Errorf("key %d: %d granted, limit %d, at least %d", key, got[key], sh.limit, least)
			}
		}
	}
	t.Logf("%d of %d permits of %d keys granted to %d instances", sum, keys*sh.limit, keys, sh.processes)
}
