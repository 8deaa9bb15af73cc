package bench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
)

// clocks are two clocks: the clock of the test, which never steps, and the server's, over a connection that is used for
// nothing else.
type clocks struct {
	start time.Time
	pool  *pgxpool.Pool
}

// A moment is a reading of the clocks.
type moment struct {
	outside time.Duration // since the start of the clocks
	server  time.Time
}

func newClocks(t testing.TB) *clocks {
	t.Helper()
	c := &clocks{pool: postgres(t, nil, 1)}
	c.read(t) // prepares the statement
	c.start = time.Now()
	return c
}

func (c *clocks) read(t testing.TB) (m moment) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	assert.NoError(t, c.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&m.server))
	m.outside = time.Since(c.start)
	return m
}

// A result is the result of a run.
type result struct {
	contestant
	load    load
	skew    time.Duration
	clocks  *clocks
	started moment

	mu        sync.Mutex
	calls     int
	rejected  int
	grants    []grant
	errors    map[string]int // by nameOf
	latencies []time.Duration
}

// A grant was decided before at.
type grant struct {
	instance int
	at       moment
}

// add counts an answer. If it is a grant, at is the reading of the clocks right after it.
func (r *result) add(instance int, took time.Duration, granted bool, at moment, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	r.latencies = append(r.latencies, took)
	switch {
	case err != nil:
		if r.errors == nil {
			r.errors = map[string]int{}
		}
		r.errors[nameOf(err)]++
	case granted:
		r.grants = append(r.grants, grant{instance, at})
	default:
		r.rejected++
	}
}

// nameOf returns the name under which an error is counted: the SQLSTATE if it has one.
func nameOf(err error) string {
	if state := sqlState(err); state != "" {
		return state
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return err.Error()
}

// allowed returns how many requests the limit allows by each clock, from the start to the last grant: one at once, and
// one for each interval that has passed.
func (r *result) allowed() (outside, server int) {
	last := r.started
	for _, g := range r.grants {
		last.outside = max(last.outside, g.at.outside)
		if g.at.server.After(last.server) {
			last.server = g.at.server
		}
	}
	return intervals(last.outside - r.started.outside), intervals(last.server.Sub(r.started.server))
}

func intervals(d time.Duration) int { return 1 + int(d/every) }

// gap returns the shortest time between two grants by the server's clock.
func (r *result) gap() (shortest time.Duration) {
	slices.SortFunc(r.grants, func(a, b grant) int { return a.at.server.Compare(b.at.server) })
	for i := 1; i < len(r.grants); i++ {
		d := r.grants[i].at.server.Sub(r.grants[i-1].at.server)
		if i == 1 || d < shortest {
			shortest = d
		}
	}
	return shortest
}

// quantile returns the latency that the share q of all calls did not exceed.
func (r *result) quantile(q float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	slices.Sort(r.latencies)
	return r.latencies[min(len(r.latencies)-1, int(q*float64(len(r.latencies))))]
}

// of returns how many grants an instance has got.
func (r *result) of(instance int) (n int) {
	for _, g := range r.grants {
		if g.instance == instance {
			n++
		}
	}
	return n
}

func (r *result) ours() bool {
	return slices.ContainsFunc(ourContestants, func(c contestant) bool { return c.name == r.name })
}
