package weirpostgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

// A key that is asked all the time must not grow the table, and must not touch the index.
func TestHotKeyDoesNotBloat(t *testing.T) {
	t.Parallel()
	pool := connect(t, postgres(t).URL, nil)
	b := newBackend(t, pool, BackendOptions{Schema: freshSchema(t, pool), AsynchronousCommit: true, NoSweep: true})
	d := stored(t, b, "hot", 1<<40, 1, 1000)
	const workers, each = 8, 1500
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				assert.NoError(t, b.Decide(context.Background(), []*backend.Batch{take(d, "k", 1)}))
			}
		})
	}
	all.Wait()
	states := pgmigrate.InSchema(`"weir".states`, b.schema)
	pool.Reset() // a session reports what it did at its end, else after ten seconds
	var updates, hot int64
	require.Eventually(t, func() bool {
		require.NoError(t, pool.QueryRow(t.Context(), `select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = $1::text::regclass`, states).Scan(&updates, &hot))
		return updates >= workers*each*9/10
	}, 20*time.Second, 50*time.Millisecond)
	pages := count(t, pool, `select pg_relation_size($1::text::regclass) / 8192`, states)
	dead := count(t, pool, `select n_dead_tup from pg_stat_user_tables where relid = $1::text::regclass`, states)
	t.Logf("%d updates, %.1f %% of them HOT, %d pages, %d dead", updates, 100*float64(hot)/float64(updates), pages, dead)
	assert.Greater(t, hot*100, updates*95)
	assert.Less(t, pages, int64(100))
}

// A plan made while the table is empty, or has one page, must serve when it is large.
func TestPlansUseThePrimaryKey(t *testing.T) {
	t.Parallel()
	pool := connect(t, postgres(t).URL+"&pool_max_conns=1", nil)
	schema := freshSchema(t, pool)
	b := newBackend(t, pool, BackendOptions{Schema: schema, NoSweep: true})
	d := stored(t, b, "a", 10, 1, 1_000_000_000)
	h := concurrency(t, b, "c", 3)
	ask := func(n int) {
		for i := range n {
			key := fmt.Sprint(i % 3)
			require.NoError(t, b.Decide(t.Context(), []*backend.Batch{take(d, key, 1)}))
			lease := &backend.LeaseRequest{Definition: h, Key: key, ID: fmt.Sprint(i), Permits: 1, TTL: 1_000_000}
			require.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{lease}))
			require.NoError(t, b.Renew(t.Context(), []*backend.LeaseRequest{lease}))
			require.NoError(t, b.Release(t.Context(), []*backend.LeaseRequest{lease}))
		}
	}
	ask(3)
	for _, table := range []string{"definitions", "states", "semaphores", "leases"} {
		exec(t, pool, pgmigrate.InSchema(`vacuum analyze "weir".`, schema)+table) // so that it counts as small
	}
	ask(60)
	exec(t, pool, pgmigrate.InSchema(`insert into "weir".states select 'x', int8send(g), 1, 1, 0, 1, 1, 0, 0, 0, 0, 0 from generate_series(1, 20000) g`, schema))
	exec(t, pool, pgmigrate.InSchema(`insert into "weir".definitions select 'x' || g, 1, 1, 1, 1, 1, 0, 0, false, 0, '', '' from generate_series(1, 5000) g`, schema))
	ask(60)
	pool.Reset() // a session reports what it did at its end
	require.Eventually(t, func() bool {
		return count(t, pool, `select sum(idx_scan)::bigint from pg_stat_user_tables where schemaname = $1`, schema) > 500
	}, 20*time.Second, 10*time.Millisecond)
	scans := count(t, pool, `select coalesce(sum(seq_tup_read), 0)::bigint from pg_stat_user_tables where schemaname = $1`, schema)
	assert.Less(t, scans, int64(100), "no table is read as a whole")
}

func TestSweepDeletesWhatIsFull(t *testing.T) {
	server := postgres(t)
	pool := connect(t, server.URL, nil)
	schema := freshSchema(t, pool)
	steerable(t, pool, schema)
	s := newSteered(t, server.URL, schema)
	defer func() { require.NoError(t, s.Close()) }()
	d := bucket(t, s.Backend, "a", 10, 1, 1_000_000)
	window := backend.NewDefinition("w", rate.Schedule{Kind: rate.SlidingWindow, Permits: 10, Period: 1_000_000, Segments: 5}, d.Anchor)
	s.setTime(d.Anchor)
	for i := range 200 {
		key := fmt.Sprintf("%03d", i)
		require.NoError(t, s.Decide(t.Context(), []*backend.Batch{take(d, key, int64(i%10+1)), take(window, key, 1)}))
	}
	left := func() int { return keys(t, s.Backend, "a") + keys(t, s.Backend, "w") }
	s.setTime(d.Anchor + 999_999)
	assert.Equal(t, 400, left())
	s.setTime(d.Anchor + 1_002_000) // the keys that took 1 are full, and 2 ms for the rounding
	assert.Equal(t, 380, left())
	s.setTime(d.Anchor + 5_002_000) // up to 5, and the windows
	assert.Equal(t, 100, left())

	// A slower definition comes into force, and the keys are full later than they were to be.
	slower := *d
	slower.Version, slower.Period = d.Anchor+5_500_000, 100_000_000
	done, err := s.Define(t.Context(), 0, d)
	require.NoError(t, err)
	require.True(t, done)
	done, err = s.Define(t.Context(), d.Version, &slower)
	require.NoError(t, err)
	require.True(t, done)
	s.setTime(d.Anchor + 20_000_000)
	assert.Equal(t, 100, left())
	s.setTime(d.Anchor + 2_000_000_000)
	assert.Zero(t, left())
}

// Deciding is enough: no other call is needed.
func TestSweepsByItself(t *testing.T) {
	t.Parallel()
	pool := connect(t, postgres(t).URL, nil)
	b := newBackend(t, pool, BackendOptions{Schema: freshSchema(t, pool)})
	d := bucket(t, b, "a", 10, 1, 1) // full again at once
	require.Eventually(t, func() bool {
		var batches []*backend.Batch
		for i := range 250 {
			batches = append(batches, take(d, fmt.Sprintf("%d-%03d", time.Now().UnixNano(), i), 1))
		}
		require.NoError(t, b.Decide(t.Context(), batches))
		return count(t, pool, pgmigrate.InSchema(`select count(*) from pg_stat_user_tables where schemaname = $1 and relname = 'states' and n_tup_del > 1000`, b.schema), b.schema) == 1
	}, time.Minute, 10*time.Millisecond)
}

// A row that another session has locked does not hold up a sweep.
func TestSweepSkipsWhatIsLocked(t *testing.T) {
	b, pool := shared(t)
	d := bucket(t, b, "a", 10, 1, 1)
	require.NoError(t, b.Decide(t.Context(), []*backend.Batch{take(d, "k", 1), take(d, "l", 1)}))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), pgmigrate.InSchema(`select from "weir".states where key = 'k' for update`, b.schema))
	require.NoError(t, err)
	gone, _, err := b.sweeper.sweepRange(t.Context(), 0, 100)
	require.NoError(t, err)
	assert.EqualValues(t, 1, gone)
	require.NoError(t, tx.Rollback(t.Context()))
	gone, _, err = b.sweeper.sweepRange(t.Context(), 0, 100)
	require.NoError(t, err)
	assert.EqualValues(t, 1, gone)
}
