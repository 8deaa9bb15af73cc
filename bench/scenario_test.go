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

// The scenario of the demo that weir grew from: two instances of a service, whose clocks differ, ask for one user, who
// may have a request every two seconds. They ask 5 times a second, then 50 and then 100 times. In the load without a
// pause, the rate is the number of clients.
const (
	every       = 2 * time.Second
	callTimeout = 5 * time.Second // longer than deadlock_timeout, so that PostgreSQL ends a deadlock first
	user        = "user:0000000"
)

var rates = []int{5, 50, 100}

var scenarioLength = flag.Duration("scenario", 0, "how long each rate of the whole scenario lasts, such as 10s; also prints its tables")

// A contestant is a limiter that is put through the scenario.
type contestant struct {
	name  string
	clock string // of the instance or of the server
	// open returns the function with which each instance asks. The instances share the state in the server.
	open func(t testing.TB, pools [2]*pgxpool.Pool, skews [2]time.Duration) [2]askFunc
}

type askFunc = func(ctx context.Context, key string) (bool, error)

// contestants returns the three limiters of the demo, each by both clocks, and ours.
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

// TestScenario puts our limiters through a short form of the scenario. With -scenario it runs all limiters and prints the
// tables of docs/postgres-limiters.md.
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

// run puts c through the scenario for each skew of the second instance. All skews run at the same time, each with its
// own table and connections, so that they share only the processors and the disk.
func (c contestant) run(t *testing.T, l load, length time.Duration) []*result {
	var results []*result
	ok := t.Run(fmt.Sprintf("%s/by=%s/clock=%s", strings.ReplaceAll(l.name, " ", "-"), c.name, c.clock), func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, skew := range l.skews {
			pools := [2]*pgxpool.Pool{postgres(t, nil, l.connections), postgres(t, nil, l.connections)}
			r := &result{contestant: c, load: l, skew: skew, clocks: newClocks(t)}
			asks := c.open(t, pools, [2]time.Duration{0, skew})
			results = append(results, r)
			wg.Go(func() {
				r.started = r.clocks.read(t)
				for phase, rate := range rates {
					l.send(rate, r.clocks.start.Add(time.Duration(phase)*length), length, func(i int) { r.ask(t, i%2, asks[i%2]) })
				}
			})
		}
	})
	if !ok {
		t.FailNow() // the table could not be made
	}
	return results
}

// ask asks once, and adds the answer to the result.
func (r *result) ask(t *testing.T, instance int, ask askFunc) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	before := time.Now()
	granted, err := ask(ctx, user)
	took := time.Since(before)
	var at moment
	if granted {
		at = r.clocks.read(t)
	}
	r.add(instance, took, granted, at, err)
}

// check asserts what weir promises: no errors, and never a request above the limit by either clock.
func (r *result) check(t *testing.T) {
	t.Helper()
	outside, server := r.allowed()
	about := fmt.Sprintf("%s, load %s, skew %v", r.name, r.load.name, r.skew)
	assert.Empty(t, r.errors, about)
	assert.NotEmpty(t, r.grants, about)
	assert.LessOrEqual(t, len(r.grants), outside, about)
	assert.LessOrEqual(t, len(r.grants), server, about)
}
