package bench

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
)

// The scenario of the demo that weir grew from: two instances of a service, whose clocks differ, ask for one
// user, who is allowed a request every two seconds; at first 5 times a second, then 50, then 100 times. A load
// that knows no seconds has so many clients.
const (
	every       = 2 * time.Second
	callTimeout = 5 * time.Second // longer than deadlock_timeout, so that PostgreSQL ends a deadlock first
	user        = "user:0000000"
)

var rates = []int{5, 50, 100}

var scenarioLength = flag.Duration("scenario", 0, "run the whole scenario, each of its three loads for so long (10s), and print its tables")

// A contestant is a limiter that is put through the scenario.
type contestant struct {
	name  string
	clock string // whose clock counts
	// open returns what each of the instances asks; they share what it makes in the server.
	open func(t testing.TB, pools [2]*pgxpool.Pool, skews [2]time.Duration) [2]askFunc
}

type askFunc = func(ctx context.Context, key string) (bool, error)

// contestants are the three of the demo, each by both clocks, and ours.
func contestants() []contestant {
	var all []contestant
	for _, d := range demos {
		for _, client := range []bool{true, false} {
			clock := map[bool]string{true: "instance", false: "server"}[client]
			all = append(all, contestant{d.name, clock, func(t testing.TB, pools [2]*pgxpool.Pool, skews [2]time.Duration) [2]askFunc {
				table := d.setUp(t, pools[0], 1, every, client)
				return [2]askFunc{table.on(pools[0], skews[0]), table.on(pools[1], skews[1])}
			}})
		}
	}
	return append(all, ourContestants...)
}

// TestScenario puts our limiters through a short form of the scenario. With -scenario it prints what
// docs/postgres-limiters.md shows.
func TestScenario(t *testing.T) {
	all := ourContestants
	if *scenarioLength > 0 {
		all = contestants()
	}
	var results []*result
	for _, l := range loads {
		length := cmp.Or(*scenarioLength, l.short)
		for _, c := range all {
			results = append(results, c.run(t, l, length)...)
		}
	}
	if *scenarioLength > 0 {
		printTables(os.Stdout, results)
	}
	for _, r := range results {
		if r.ours() {
			r.check(t)
		}
	}
}

// run puts c through the scenario for each skew of the second instance. All skews are tried at the same time, each with
// a table and connections of its own: in the server they meet nowhere but at the processors and the disk.
func (c contestant) run(t *testing.T, l load, length time.Duration) []*result {
	var results []*result
	ok := t.Run(fmt.Sprintf("%s/by=%s/clock=%s", strings.ReplaceAll(l.name, " ", "-"), c.name, c.clock), func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, skew := range l.skews {
			pools := [2]*pgxpool.Pool{postgres(t, nil, l.connections), postgres(t, nil, l.connections)}
			r := &result{contestant: c, load: l, skew: skew, judge: newJudge(t)}
			asks := c.open(t, pools, [2]time.Duration{0, skew})
			results = append(results, r)
			wg.Go(func() {
				r.started = r.judge.look(t)
				for phase, rate := range rates {
					l.send(rate, r.judge.start.Add(time.Duration(phase)*length), length, func(i int) { r.ask(t, i%2, asks[i%2]) })
				}
			})
		}
	})
	if !ok {
		t.FailNow() // its table could not be made
	}
	return results
}

// ask asks once, and writes down what came of it.
func (r *result) ask(t *testing.T, instance int, ask askFunc) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	before := time.Now()
	granted, err := ask(ctx, user)
	took := time.Since(before)
	var at moment
	if granted {
		at = r.judge.look(t)
	}
	r.add(instance, took, granted, at, err)
}

// check asserts what we promise: no errors, and never a request too many by any of the two clocks.
func (r *result) check(t *testing.T) {
	t.Helper()
	outside, server := r.allowed()
	about := fmt.Sprintf("%s, load %s, skew %v", r.name, r.load.name, r.skew)
	assert.Empty(t, r.errors, about)
	assert.NotEmpty(t, r.grants, about)
	assert.LessOrEqual(t, len(r.grants), outside, about)
	assert.LessOrEqual(t, len(r.grants), server, about)
}
