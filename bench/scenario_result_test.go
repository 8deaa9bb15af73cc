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

// A judge looks at two clocks: that of the test, which never steps, and the server's, over
// a connection that is used for nothing else.
type judge struct {
	start time.Time
	pool  *pgxpool.Pool
}

// A moment is what the clocks showed.
type moment struct {
	outside time.Duration // since the judge came
	server  time.Time
}

func newJudge(t testing.TB) *judge {
	t.Helper()
	j := &judge{pool: postgres(t, nil, 1)}
	j.look(t) // the statement is prepared now
	j.start = time.Now()
	return j
}

func (j *judge) look(t testing.TB) (m moment) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	assert.NoError(t, j.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&m.server))
	m.outside = time.Since(j.start)
	return m
}

// A result is what came of a run.
type result struct {
	contestant
	load    load
	skew    time.Duration
	judge   *judge
	started moment

	mu        sync.Mutex
	calls     int
	rejected  int
	grants    []grant
	errors    map[string]int // by SQLSTATE, or a word of ours
	latencies []time.Duration
}

// A grant was decided before the moment at.
type grant struct {
	instance int
	at       moment
}

// add counts an answer. If it is a grant, at is a look at the clocks right after it.
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
		r.errors[word(err)]++
	case granted:
		r.grants = append(r.grants, grant{instance, at})
	default:
		r.rejected++
	}
}

// word is what an error is counted under.
func word(err error) string {
	if state := sqlState(err); state != "" {
		return state
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return err.Error()
}

// allowed is how many requests the rule allows by each clock, from the start to the last that was granted: one
// at once, and one for each interval that has gone by.
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

// gap is the shortest time between two grants by the server's clock.
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

// quantile is the time that so many of all calls took at the longest.
func (r *result) quantile(q float64) time.Duration {
	if len(r.latencies) == 0 {
		return 0
	}
	slices.Sort(r.latencies)
	return r.latencies[min(len(r.latencies)-1, int(q*float64(len(r.latencies))))]
}

// of is how many grants an instance has got.
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
