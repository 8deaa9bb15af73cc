package drill

import (
	"testing"
	"time"

	"github.com/weir-go/weir/limiter/limitertest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/tools/stopwatch"
)

// A refillCase is a case of refills.
type refillCase struct {
	name      string
	kind      limitertest.Kind
	processes int
	options   store.LimiterOptions
	kills     int
	stops     int // how many others are stopped until the end
}

func refillCases() []refillCase {
	all := []refillCase{
		{name: "bucket", kind: limitertest.TokenBucket, processes: 2},
		{name: "one killed, one stopped", kind: limitertest.TokenBucket, processes: 4, kills: 1, stops: 1},
		{name: "eight, a bucket", kind: limitertest.TokenBucket, processes: 8},
		{name: "window", kind: limitertest.FixedWindow, processes: 2},
		{name: "sliding window", kind: limitertest.SlidingWindow, processes: 2},
		{name: "rejections remembered", kind: limitertest.TokenBucket, processes: 2, options: store.LimiterOptions{CacheRejections: true}},
		{name: "blocks of a bucket", kind: limitertest.TokenBucket, processes: 2, options: store.LimiterOptions{Block: 10}},
		{name: "blocks of a window", kind: limitertest.FixedWindow, processes: 2, options: store.LimiterOptions{Block: 10}},
		{name: "killed", kind: limitertest.TokenBucket, processes: 4, kills: 2},
	}
	return all[:short(len(all), 2)]
}

const (
	refillLimit   = 40
	refillPeriod  = 200 * time.Millisecond
	refillPermits = 20
)

// refills tests that instances that wait for permits get what comes back by the server's clock, and no more.
func refills(t *testing.T, s Subject) {
	for _, c := range refillCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // each mostly waits for its refills
			c.run(t, s)
		})
	}
}

func (c refillCase) run(t *testing.T, s Subject) {
	place := s.Place(t)
	b := s.backend(t, place)
	limits := limitertest.Limits{Permits: refillLimit, Period: refillPeriod, TokensPerPeriod: refillPermits, Segments: 2, QueueLimit: 1000}
	all := prepareAll(t, c.processes, job{
		Place: place, Name: uniqueName("flow"), Kind: c.kind, Options: c.options, Permits: []int{1, 2}, Limits: limits,
		Goroutines: 2 * goroutines, Work: takeForever,
	})
	before := serverTime(t, b)
	beginAll(all...)
	eventually(t, "the first permits are used up", func() bool { return granted(all)[0] >= 3*refillLimit/2 })
	from, grantedFrom := serverTime(t, b), granted(all)[0]
	for _, p := range all[:c.kills] {
		awaitServerTime(t, b, 200*time.Millisecond)
		p.kill()
	}
	stopped := all[c.kills : c.kills+c.stops]
	for _, p := range stopped {
		p.pause()
	}
	awaitServerTime(t, b, 3*time.Second)
	to, grantedTo := serverTime(t, b), granted(all)[0]
	for _, p := range stopped {
		p.resume()
	}
	finishAll(all, true)
	after := serverTime(t, b)

	step := limits.Step(c.kind).Microseconds()
	most := refillLimit + c.perTick()*((after-before)/step+1)
	got := granted(all)[0]
	if got > most {
		t.Errorf("%d granted within %d µs of the server's clock, at most %d are right", got, after-before, most)
	}
	// Between from and to, the instances take all permits that come back, except the permits of the
	// last moment, permits granted to killed or stopped instances, and permits that are still in a block.
	late := (3 * time.Second / 2).Microseconds()
	least := c.perTick()*((to-from-late)/step) - int64(2*(c.kills+c.stops)*2*goroutines) - int64(c.processes*c.options.Block)
	if grantedTo == grantedFrom || stopwatch.Running && grantedTo-grantedFrom < least {
		t.Errorf("%d granted within %d µs, at least %d are right", grantedTo-grantedFrom, to-from, least)
	}
	t.Logf("%d granted, at most %d are right; %d in the middle, at least %d are right", got, most, grantedTo-grantedFrom, least)
}

// perTick returns how many permits come back on a tick.
func (c refillCase) perTick() int64 {
	switch c.kind {
	case limitertest.FixedWindow:
		return refillLimit
	case limitertest.SlidingWindow:
		return refillLimit / 2 // on average: what was taken in a segment comes back together
	default:
		return refillPermits
	}
}

// awaitServerTime waits until the server's clock has advanced by d.
func awaitServerTime(t testing.TB, b backend.Backend, d time.Duration) {
	for end := serverTime(t, b) + d.Microseconds(); serverTime(t, b) < end; {
		time.Sleep(5 * time.Millisecond) // there is no event for the server's time
	}
}
