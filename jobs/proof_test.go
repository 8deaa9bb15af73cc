package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/jobs/internal/window"
	"github.com/weir-go/weir/tools/stopwatch"
)

// These run real River clients in two processes on a real PostgreSQL. What must never happen is always asserted, by the
// database's clock. How long things take is what docs/jobs.md says, and is asserted by make drill.

// proof lets a test run beside the others, unless it measures.
func proof(t *testing.T) {
	if !stopwatch.Running {
		t.Parallel()
	}
}

// within logs a figure, and fails if it is larger than it may be on a quiet machine.
func within(t *testing.T, what string, got, most float64) {
	t.Helper()
	t.Logf("%s: %.2f (at most %.2f if nothing else runs)", what, got, most)
	if stopwatch.Running {
		assert.LessOrEqual(t, got, most, what)
	}
}

func TestProof_ThousandJobsOnOneMutex(t *testing.T) {
	proof(t)
	n := 100
	if stopwatch.Running {
		n = 1000
	}
	w := newWorld(t)
	w.notes()
	w.insert(n, func(int) noteArgs { return noteArgs{Key: "k", Sleep: 20 * time.Millisecond} })
	p := process{Throttle: &Throttle{Limits: []Limit{{Mutex: "m", Key: "{key}"}}}, Workers: 50, Poll: 100 * time.Millisecond}
	one, two := w.process(p), w.process(p)
	w.await(int64(n))
	one.stop()
	two.stop()
	w.noErrors()
	assert.EqualValues(t, 1, w.most())
	assert.EqualValues(t, n, w.Int(`select count(distinct job) from NOTES where ended is not null`))
	assert.EqualValues(t, 1, w.Int(`select max(attempt) from RIVER`), "being throttled costs no attempt")
	busy := float64(w.Int(`select (sum(extract(epoch from ended - begun)) * 1000)::bigint from NOTES`))
	t.Logf("the work alone took %.1fs, all of it %v", busy/1000, w.makespan())
	within(t, "makespan by ideal", float64(w.makespan().Milliseconds())/busy, 2)
	within(t, "runs a job", w.runs(), 3)
	overtaken := w.Int(`select count(*) from (select job, lag(job) over (order by begun) as before from NOTES) q where before > job`)
	within(t, "jobs that came before one with a lower ID", float64(overtaken), float64(n)*0.1)
}

// No window ever counts more than its limit, also with one client's clock 30s ahead and the other's 30s behind. The latter is
// River's leader, so that it would make scheduled jobs available 30s late.
func TestProof_Windows(t *testing.T) {
	proof(t)
	for _, c := range []struct {
		d             Definition
		limit         Limit
		jobs, measure int // how many, and how many if it is measured
		clocks        time.Duration
		seconds, runs float64
	}{
		{Definition{FixedWindow: "api", Limit: 40, Interval: time.Second}, Limit{FixedWindow: "api"}, 120, 200, 0, 5, 2},
		{Definition{SlidingWindow: "api", Limit: 10, Interval: 3 * time.Second, Buckets: 3}, Limit{SlidingWindow: "api"}, 20, 30, 30 * time.Second, 9, 3},
	} {
		t.Run(fmt.Sprint("clocks are off by ", c.clocks), func(t *testing.T) {
			proof(t)
			if stopwatch.Running {
				c.jobs = c.measure
			}
			w := newWorld(t)
			w.notes()
			require.NoError(t, w.throttler(Options{}).Set(t.Context(), c.d))
			w.watchKeys()
			w.insert(c.jobs, func(int) noteArgs { return noteArgs{Key: "k"} })
			p := process{Throttle: &Throttle{Limits: []Limit{c.limit}}, Workers: 100, Poll: 50 * time.Millisecond, Clock: -c.clocks}
			one := w.process(p)
			p.Clock, p.Follower = c.clocks, c.clocks > 0
			two := w.process(p)
			w.await(int64(c.jobs))
			one.stop()
			two.stop()
			executions := w.counted(1_000_000)
			require.Len(t, executions, c.jobs)
			for i, first := range executions { // every window
				in := 0
				for _, later := range executions[i:] {
					if later.bucket-first.bucket < int64(max(c.d.Buckets, 1)) {
						in++
					}
				}
				assert.LessOrEqual(t, in, c.d.Limit)
			}
			within(t, "seconds until the last began", float64(executions[c.jobs-1].at-executions[0].at)/1e6, c.seconds)
			within(t, "runs a job", w.runs(), c.runs)
		})
	}
}

// watchKeys makes the database write down each state that a window gets, and when.
func (w *world) watchKeys() {
	w.Exec(`create table "weir".states (began timestamptz, at timestamptz, state text)`)
	w.Exec(`create function "weir".watch() returns trigger language plpgsql as $$ begin
		insert into "weir".states values (now(), clock_timestamp(), new.state); return new; end $$`)
	w.Exec(`create trigger watch after update on "weir".jobs_keys for each row execute function "weir".watch()`)
}

// An execution is one that a window has counted.
type execution struct {
	bucket int64 // in which it was counted
	at     int64 // when that was written, µs
}

// counted returns the executions that a window has counted, by how its counts have grown, in order. An execution is counted
// in the bucket of the moment at which it is granted, which is within its transaction by the database's clock. There must be
// one for each attempt of a job, and no attempt must have failed.
func (w *world) counted(width int64) (all []execution) {
	w.t.Helper()
	rows, err := w.Pool.Query(context.Background(), w.SQL(`select (extract(epoch from began) * 1000000)::bigint, (extract(epoch from at) * 1000000)::bigint,
		state from "weir".states order by at`))
	require.NoError(w.t, err)
	defer rows.Close()
	seen := map[int64]int64{} // by bucket
	for rows.Next() {
		var began, at int64
		var state string
		require.NoError(w.t, rows.Scan(&began, &at, &state))
		counts := mustRead(w.t, state, window.Rules{Bucket: width, Buckets: 1000}, at) // long enough to forget nothing
		for _, b := range counts.Filled {
			for ; seen[b.At] < b.Started; seen[b.At]++ {
				require.GreaterOrEqual(w.t, b.At, began/width)
				require.LessOrEqual(w.t, b.At, at/width)
				all = append(all, execution{b.At, at})
			}
		}
	}
	require.NoError(w.t, rows.Err())
	w.noErrors()
	require.Len(w.t, all, int(w.Int(`select sum(attempt) from RIVER`)), "executions that were counted, and attempts")
	return all
}

// Twenty at a time, in two processes of which one is killed in the middle.
func TestProof_SemaphoreAndKill(t *testing.T) {
	proof(t)
	n := 200
	w := newWorld(t)
	w.notes()
	setter := w.throttler(Options{})
	require.NoError(t, setter.Set(t.Context(), Definition{Semaphore: "s", MaxCount: 20}))
	w.insert(n, func(int) noteArgs { return noteArgs{Key: "k", Sleep: 200 * time.Millisecond} })
	p := process{Throttle: &Throttle{Limits: []Limit{{Semaphore: "s"}}}, Workers: 50, Poll: 100 * time.Millisecond}
	p.ID = "killed"
	one := w.process(p)
	p.ID = "other"
	two := w.process(p)
	w.await(50)
	one.kill()
	const ofKilled = `state = 'running' and attempted_by[cardinality(attempted_by)] = 'killed'`
	// Their leases are over, and the other process does all other jobs. The server may still end a statement of the killed process.
	require.Eventually(t, func() bool {
		w.Exec(`update "weir".jobs_holders set until = clock_timestamp() where until > clock_timestamp() and job in (select id from RIVER where ` + ofKilled + `)`)
		return w.Int(`select count(*) from RIVER where state = 'completed' or `+ofKilled) == int64(n)
	}, patience, 50*time.Millisecond)
	// River rescues the killed process's jobs after an hour: here it is done by hand.
	w.Exec(`update NOTES set ended = begun where ended is null`)
	w.Exec(`update RIVER set state = 'available', scheduled_at = now() where ` + ofKilled)
	w.await(int64(n))
	two.stop()
	w.noErrors()
	assert.LessOrEqual(t, w.most(), int64(20))
	assert.EqualValues(t, n, w.Int(`select count(distinct job) from NOTES`))
}

// Three tenants on a capacity of 20 in 1 second, or 2 if it is measured: the first alone, then two, then three, and alone again.
func TestProof_DynamicWindow(t *testing.T) {
	proof(t)
	interval := time.Second
	if stopwatch.Running {
		interval = 2 * time.Second
	}
	w := newWorld(t)
	w.notes()
	setter := w.throttler(Options{})
	require.NoError(t, setter.Set(t.Context(), Definition{DynamicWindow: "newsletter", Capacity: 20, MinLimit: 2, MaxLimit: 20, Interval: interval}))
	p := process{Throttle: &Throttle{Limits: []Limit{{DynamicWindow: "newsletter", Key: "tenant:{key}"}}}, Workers: 100, Poll: 50 * time.Millisecond}
	one, two := w.process(p), w.process(p)
	tenant := func(name string, n int) { w.insert(n, func(int) noteArgs { return noteArgs{Key: name} }) }
	tenant("a", 100)
	w.awaitNotes("a", 21) // it is alone in its second window
	tenant("b", 30)
	w.awaitNotes("b", 11)
	tenant("c", 14)
	w.await(144)
	one.stop()
	two.stop()
	w.noErrors()
	rows, err := w.Pool.Query(t.Context(), w.SQL(`select floor(extract(epoch from begun) / $1)::bigint - min(floor(extract(epoch from begun) / $1)::bigint) over (), key, count(*)
		from NOTES group by floor(extract(epoch from begun) / $1), key order by 1, 2`), interval.Seconds())
	require.NoError(t, err)
	defer rows.Close()
	windows := map[int64]map[string]int64{}
	for rows.Next() {
		var window, n int64
		var key string
		require.NoError(t, rows.Scan(&window, &key, &n))
		if windows[window] == nil {
			windows[window] = map[string]int64{}
		}
		windows[window][key] = n
	}
	var text strings.Builder
	for i := range int64(40) {
		if windows[i] != nil {
			fmt.Fprintln(&text, i, windows[i])
		}
	}
	t.Log("\n" + text.String())
	// The work of a job begins a moment after it was counted: on a busy machine in the next window.
	shares := [][]string{{"a:20"}, {"a:20"}, {"a:10 b:10"}, {"a:10 b:10", "a:7 b:7 c:6"}, {"a:7 b:7 c:6"}}
	if stopwatch.Running {
		for i, want := range shares {
			assert.Contains(t, want, strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(windows[int64(i)]), "map["), "]"))
		}
	}
	within(t, "runs a job", w.runs(), 4)
}

func (w *world) awaitNotes(key string, n int64) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.Int(`select count(*) from NOTES where key = $1`, key) >= n }, patience, 20*time.Millisecond)
}

// A client without the plugin fails its jobs by name, and does not run them.
func TestProof_ClientWithoutPlugin(t *testing.T) {
	proof(t)
	w := newWorld(t)
	w.notes()
	w.insert(3, func(int) noteArgs { return noteArgs{} })
	c := w.process(process{Throttle: &Throttle{Limits: []Limit{{Mutex: "m"}}}, NoPlugin: true, Workers: 10, Poll: 100 * time.Millisecond})
	require.Eventually(t, func() bool {
		return w.Int(`select count(*) from RIVER where errors[1]->>'error' like '%no plugin of a Throttler%'`) == 3
	}, patience, 50*time.Millisecond)
	c.stop()
	assert.Zero(t, w.Int(`select count(*) from NOTES`))
}
