package drill

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
)

// A span is for how long a lease was held, by the machine's clock: a little less than by the store's, as its beginning
// is told after the answer and its end before the release.
type span struct {
	from, to time.Time
	permits  int64
}

// spans are those of all instances. What an instance held that was killed, it held until then; what it held when it
// was asked to end, until now.
func spans(all []*process) (held []span) {
	for _, p := range all {
		end := time.Now()
		if !p.killed.IsZero() {
			end = p.killed
		}
		until := map[int64]time.Time{}
		for _, l := range p.linesOf("r") {
			until[l.args[0]] = l.at
		}
		for _, l := range p.linesOf("h") {
			if len(l.args) != 4 {
				continue // it was killed in the middle of a word
			}
			s := span{from: l.at, to: end, permits: l.args[1]}
			if to, ok := until[l.args[0]]; ok {
				s.to = to
			}
			held = append(held, s)
		}
	}
	return held
}

// maxHeld is the largest number of permits held at once.
func maxHeld(all []span) (most int64) {
	type change struct {
		at time.Time
		by int64
	}
	var changes []change
	for _, s := range all {
		changes = append(changes, change{s.from, s.permits}, change{s.to, -s.permits})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	sum := int64(0)
	for _, c := range changes {
		sum += c.by
		most = max(most, sum)
	}
	return most
}

// HeldWithinLimit has instances hold leases of one to three permits, kills some of them, and looks at what was held at
// once.
func HeldWithinLimit(t *testing.T, s Subject) {
	for _, c := range []struct {
		name             string
		processes, kills int
	}{{"two", 2, 0}, {"eight, of which three are killed", 8, 3}} {
		t.Run(c.name, func(t *testing.T) {
			const limit, ttl = 6, 2 * time.Second
			place, name := s.Place(t), name("holds")
			limits := limitertest.Limits{Permits: limit, QueueLimit: 1000}
			how := store.LimiterOptions{LeaseTTL: ttl}
			all := startAll(t, same(c.processes, job{
				Place: place, Name: name, Kind: limitertest.Concurrency, Limits: limits, How: how,
				Permits: []int{1, 1, 2, 3}, Goroutines: 4, Work: leaseOn,
			})...)
			for i := range c.processes {
				eventually(t, "each instance has its turns", func() bool { return len(all[i].linesOf("r")) >= 5 })
			}
			for i := range c.kills {
				all[i].kill()
			}
			for i := c.kills; i < c.processes; i++ {
				had := len(all[i].linesOf("r"))
				eventually(t, "the others go on", func() bool { return len(all[i].linesOf("r")) >= had+5 })
			}
			finishAll(all, true)
			held := spans(all)
			if most := maxHeld(held); most > limit {
				t.Errorf("%d were held at once, the limit is %d", most, limit)
			}
			seats := must(build(s.store(t, place, store.Options{}), name, limitertest.Concurrency, limits, &how))(t)
			begun := time.Now()
			eventually(t, "everything comes back", func() bool { return seats.Statistics().AvailablePermits == limit })
			if c.kills == 0 && time.Since(begun) > ttl/2 {
				t.Errorf("it took %v until everything had come back", time.Since(begun))
			}
			t.Logf("%d leases, %d permits at once", len(held), maxHeld(held))
		})
	}
}
