package jobs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// These run real River clients in two processes on a real PostgreSQL. What must never happen is always asserted. How
// long things take is asserted loosely, because tests of other packages run at the same time: WEIR_MEASURE=1 asserts what
// docs/jobs.md says, on a machine with nothing else to do.
var measure = os.Getenv("WEIR_MEASURE") != ""

// proof lets a test run beside the others, unless it measures.
func proof(t *testing.T) {
	if !measure {
		t.Parallel()
	}
}

// within fails if a figure is larger than it may be.
func within(t *testing.T, what string, got, quiet, busy float64) {
	t.Helper()
	limit := busy
	if measure {
		limit = quiet
	}
	t.Logf("%s: %.2f (at most %.2f)", what, got, limit)
	assert.LessOrEqual(t, got, limit, what)
}

func TestProof_ThousandJobsOnOneMutex(t *testing.T) {
	proof(t)
	n := 150
	if measure {
		n = 1000
	}
	w := newWorld(t)
	w.notes()
	w.insert(n, func(int) noteArgs { return noteArgs{Key: "k", Sleep: 20 * time.Millisecond} })
	p := process{Throttle: &Throttle{Limits: []Limit{{Mutex: "m", Key: "{key}"}}}, Workers: 50, Poll: 100 * time.Millisecond}
	one, two := w.process(p), w.process(p)
	w.await(int64(n), 5*time.Minute)
	one.stop()
	two.stop()
	assert.EqualValues(t, 1, w.most())
	assert.EqualValues(t, n, w.int(`select count(distinct job) from NOTES where ended is not null`))
	assert.EqualValues(t, 1, w.int(`select max(attempt) from RIVER`), "being throttled costs no attempt")
	busy := float64(w.int(`select (sum(extract(epoch from ended - begun)) * 1000)::bigint from NOTES`))
	t.Logf("the work alone took %.1fs, all of it %v", busy/1000, w.makespan())
	within(t, "makespan by ideal", float64(w.makespan().Milliseconds())/busy, 2, 10)
	within(t, "runs a job", w.runs(), 3, 10)
	overtaken := w.int(`select count(*) from (select job, lag(job) over (order by begun) as before from NOTES) q where before > job`)
	within(t, "jobs that came before one with a lower ID", float64(overtaken), float64(n)*0.1, float64(n)*0.5)
}

func TestProof_FixedWindow(t *testing.T) {
	proof(t)
	n := 200
	w := newWorld(t)
	w.notes()
	setter := w.throttler(Options{})
	require.NoError(t, setter.SetFixedWindow(t.Context(), "api", FixedWindowOptions{Limit: 40, Interval: time.Second}))
	w.watchKeys()
	w.insert(n, func(int) noteArgs { return noteArgs{Key: "k"} })
	p := process{Throttle: &Throttle{Limits: []Limit{{FixedWindow: "api"}}}, Workers: 100, Poll: 50 * time.Millisecond}
	one, two := w.process(p), w.process(p)
	w.await(int64(n), time.Minute)
	one.stop()
	two.stop()
	begun := w.begun(rules{bucket: 1_000_000, buckets: 1})
	require.Len(t, begun, n)
	in := map[int64]int{}
	for _, at := range begun {
		in[at/1_000_000]++
	}
	for window, n := range in {
		assert.LessOrEqual(t, n, 40, window)
	}
	// The ideal: 40 begin in the window of the first, and 40 at the beginning of each one after it.
	first, last := begun[0], begun[n-1]
	ideal := (first/1_000_000+4)*1_000_000 - first
	within(t, "seconds behind the ideal", float64(last-first-ideal)/1e6, 0.02*5, 10)
	within(t, "runs a job", w.runs(), 2, 5)
}

// A limit of 10 in 3 seconds, in 3 buckets, with one client's clock 30s ahead and the other's 30s behind. The latter is
// River's leader, so that it would make scheduled jobs available 30s late.
func TestProof_SlidingWindowWithClocksThatAreOff(t *testing.T) {
	proof(t)
	n := 30
	w := newWorld(t)
	w.notes()
	setter := w.throttler(Options{})
	require.NoError(t, setter.SetSlidingWindow(t.Context(), "api", SlidingWindowOptions{Limit: 10, Interval: 3 * time.Second, Buckets: 3}))
	w.watchKeys()
	w.insert(n, func(int) noteArgs { return noteArgs{Key: "k"} })
	p := process{Throttle: &Throttle{Limits: []Limit{{SlidingWindow: "api"}}}, Workers: 20, Poll: 50 * time.Millisecond}
	p.Clock = -30 * time.Second
	one := w.process(p)
	p.Clock, p.Follower = 30*time.Second, true
	two := w.process(p)
	w.await(int64(n), 2*time.Minute)
	one.stop()
	two.stop()
	begun := w.begun(rules{bucket: 1_000_000, buckets: 3})
	assert.Len(t, begun, n)
	most := 0
	for i, first := range begun { // every window of three buckets that ends with a bucket
		in := 0
		for _, later := range begun[i:] {
			if later/1_000_000-first/1_000_000 < 3 {
				in++
			}
		}
		most = max(most, in)
	}
	assert.LessOrEqual(t, most, 10)
	most = 0
	for i, first := range begun { // and every span of two seconds, wherever it begins
		in := 0
		for _, later := range begun[i:] {
			if later-first < 2_000_000 {
				in++
			}
		}
		most = max(most, in)
	}
	assert.LessOrEqual(t, most, 10)
	within(t, "seconds until the last began", float64(begun[n-1]-begun[0])/1e6, 9, 20)
	within(t, "runs a job", w.runs(), 3, 8)
}

// watchKeys makes the database write down when executions are counted: the work of a job begins later.
func (w *world) watchKeys() {
	w.exec(`create table "weir".counted (at timestamptz, state text)`)
	w.exec(`create function "weir".count() returns trigger language plpgsql as $$ begin
		insert into "weir".counted values (clock_timestamp(), new.state); return new; end $$`)
	w.exec(`create trigger count after update on "weir".jobs_keys for each row execute function "weir".count()`)
}

// begun returns when executions were counted, in µs, by how the sum of a window's state has grown.
func (w *world) begun(r rules) (at []int64) {
	w.t.Helper()
	rows, err := w.pool.Query(context.Background(), w.sql(`select (extract(epoch from at) * 1000000)::bigint, state from "weir".counted order by at`))
	require.NoError(w.t, err)
	defer rows.Close()
	seen := map[int64]int64{} // by bucket, what began in it
	for rows.Next() {
		var micros int64
		var state string
		require.NoError(w.t, rows.Scan(&micros, &state))
		window, err := readWindow(state, r, micros)
		require.NoError(w.t, err)
		for _, b := range window.filled {
			for ; seen[b.at] < b.started; seen[b.at]++ {
				at = append(at, micros)
			}
		}
	}
	require.NoError(w.t, rows.Err())
	return at
}

// Twenty at a time, in two processes of which one is killed in the middle.
func TestProof_SemaphoreAndKill(t *testing.T) {
	proof(t)
	n := 200
	w := newWorld(t)
	w.notes()
	setter := w.throttler(Options{})
	require.NoError(t, setter.SetSemaphore(t.Context(), "s", SemaphoreOptions{MaxCount: 20}))
	w.insert(n, func(int) noteArgs { return noteArgs{Key: "k", Sleep: 200 * time.Millisecond} })
	p := process{Throttle: &Throttle{Limits: []Limit{{Semaphore: "s"}}}, Workers: 50, Poll: 100 * time.Millisecond, Lease: 2 * time.Second}
	one, two := w.process(p), w.process(p)
	w.await(50, time.Minute)
	one.kill()
	killed := w.int(`select count(*) from NOTES n join RIVER j on j.id = n.job where n.ended is null and j.state = 'running'`)
	// River rescues the killed process's jobs after an hour: here it is done by hand, after the others are through.
	w.awaitOthers()
	t.Logf("%d jobs were running when the process was killed", killed)
	w.exec(`update NOTES set ended = begun where ended is null`)
	w.exec(`update RIVER set state = 'available', scheduled_at = now() where state = 'running'`)
	w.await(int64(n), time.Minute)
	two.stop()
	assert.LessOrEqual(t, w.most(), int64(20))
	assert.EqualValues(t, n, w.int(`select count(distinct job) from NOTES`))
}

// awaitOthers waits until only jobs are left that a killed process was running.
func (w *world) awaitOthers() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		return w.int(`select count(*) from RIVER where state <> 'completed' and (state <> 'running' or attempted_at > now() - interval '5 seconds')`) == 0
	}, 2*time.Minute, 100*time.Millisecond)
}

// Three tenants on a capacity of 20 in 1 second, or 2 if it is measured: the first alone, then two, then three, and alone again.
func TestProof_DynamicWindow(t *testing.T) {
	proof(t)
	interval := time.Second
	if measure {
		interval = 2 * time.Second
	}
	w := newWorld(t)
	w.notes()
	setter := w.throttler(Options{})
	require.NoError(t, setter.SetDynamicWindow(t.Context(), "newsletter", DynamicWindowOptions{Capacity: 20, MinLimit: 2, MaxLimit: 20, Interval: interval}))
	p := process{Throttle: &Throttle{Limits: []Limit{{DynamicWindow: "newsletter", Key: "tenant:{key}"}}}, Workers: 100, Poll: 50 * time.Millisecond}
	one, two := w.process(p), w.process(p)
	tenant := func(name string, n int) { w.insert(n, func(int) noteArgs { return noteArgs{Key: name} }) }
	tenant("a", 100)
	w.awaitNotes("a", 21) // it is alone in its second window
	tenant("b", 30)
	w.awaitNotes("b", 11)
	tenant("c", 14)
	w.await(144, 2*time.Minute)
	one.stop()
	two.stop()
	rows, err := w.pool.Query(t.Context(), w.sql(`select floor(extract(epoch from begun) / $1)::bigint - min(floor(extract(epoch from begun) / $1)::bigint) over (), key, count(*)
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
	if measure {
		for i, want := range shares {
			assert.Contains(t, want, strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(windows[int64(i)]), "map["), "]"))
		}
	}
	within(t, "runs a job", w.runs(), 4, 10)
}

func (w *world) awaitNotes(key string, n int64) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); w.int(`select count(*) from NOTES where key = $1`, key) < n; time.Sleep(20 * time.Millisecond) {
		require.True(w.t, time.Now().Before(deadline), "timeout")
	}
}

// A client without the plugin fails its jobs by name, and does not run them.
func TestProof_ClientWithoutPlugin(t *testing.T) {
	proof(t)
	w := newWorld(t)
	w.notes()
	w.insert(3, func(int) noteArgs { return noteArgs{} })
	c := w.process(process{Throttle: &Throttle{Limits: []Limit{{Mutex: "m"}}}, NoPlugin: true, Workers: 10, Poll: 100 * time.Millisecond})
	require.Eventually(t, func() bool {
		return w.int(`select count(*) from RIVER where errors[1]->>'error' like '%no plugin of a Throttler%'`) == 3
	}, time.Minute, 50*time.Millisecond)
	c.stop()
	assert.Zero(t, w.int(`select count(*) from NOTES`))
}
