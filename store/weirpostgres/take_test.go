package weirpostgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// ways counts which way decisions went.
type ways struct {
	take, decide atomic.Int64
	beforeDecide func()
}

func (w *ways) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.Contains(q.SQL, ".take("):
		w.take.Add(1)
	case strings.Contains(q.SQL, ".decide("):
		w.decide.Add(1)
		if w.beforeDecide != nil {
			w.beforeDecide()
		}
	}
	return ctx
}

func (w *ways) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A walk decides one thing after the other, at times that it sets, and holds each against Definition.Decide.
type walk struct {
	t    *testing.T
	b    *steered
	pool *pgxpool.Pool // with sessions whose time is the server's
	w    ways
	s    map[[2]string]rate.State // by name and key
	key  string
}

func newWalk(t *testing.T) *walk {
	w := &walk{t: t, s: map[[2]string]rate.State{}}
	url := postgres(t).URL
	w.pool = connect(t, url, nil)
	schema := freshSchema(t, w.pool)
	steerable(t, w.pool, schema)
	w.b = newSteered(t, url, schema, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &w.w })
	t.Cleanup(func() { assert.NoError(t, w.b.Close()) })
	return w
}

// decide expects that the batch is decided at that time of the server, by one statement with the function take or decide, as if it had
// been at the moment now.
func (w *walk) decide(at int64, d *backend.Definition, ask backend.Request, takes bool, now int64) *backend.Batch {
	w.t.Helper()
	w.b.setTime(at)
	w.w.take.Store(0)
	w.w.decide.Store(0)
	batch := &backend.Batch{Definition: d, Key: w.key, Requests: []backend.Request{ask}, Granted: make([]int64, 1)}
	require.NoError(w.t, w.b.Decide(w.t.Context(), []*backend.Batch{batch}))
	assert.Equal(w.t, bit(takes), w.w.take.Load(), "by take")
	assert.Equal(w.t, bit(!takes), w.w.decide.Load(), "by decide")
	assert.Equal(w.t, now, batch.Now)
	w.follow(batch)
	return batch
}

// define stores d, of which the function take reads the limits.
func (w *walk) define(d *backend.Definition) *backend.Definition {
	w.t.Helper()
	stored, _, err := w.b.Load(w.t.Context(), d.Name)
	require.NoError(w.t, err)
	old := int64(0)
	if stored != nil {
		old = stored.Version
	}
	done, err := w.b.Define(w.t.Context(), old, d)
	require.NoError(w.t, err)
	require.True(w.t, done)
	return d
}

// follow holds what was decided against Definition.Decide.
func (w *walk) follow(batch *backend.Batch) {
	w.t.Helper()
	if batch.Outcome != backend.Decided {
		return
	}
	at := [2]string{batch.Definition.Name, batch.Key}
	s, ok := w.s[at]
	if !ok {
		s = batch.Definition.Full(batch.Now)
	}
	from := s
	granted := make([]int64, 1)
	batch.Definition.Decide(&s, batch.Now, batch.Requests, granted)
	w.s[at] = s
	require.Equal(w.t, granted, batch.Granted, "%+v at %d from %+v: %+v", batch.Definition, batch.Now, from, batch.Requests)
	require.Equal(w.t, s, batch.State, "%+v at %d from %+v: %+v", batch.Definition, batch.Now, from, batch.Requests)
}

const someTime = int64(2_000_000_000_000_000)

// plainDefinition is of a bucket whose lines are a second apart.
func plainDefinition() *backend.Definition {
	return backend.NewDefinition("plain", rate.Schedule{Kind: rate.TokenBucket, Permits: 5, Refill: 2, Period: 1_000_000}, someTime)
}

// Takes are decided in one round trip, also if they are rejected. The function decide does so for a key that was rejected lately.
func TestTakes(t *testing.T) {
	const byTake, byDecide = true, false
	w := newWalk(t)
	d := w.define(plainDefinition())
	at := someTime + 500_000
	now := func(n int64, takes bool) *backend.Batch {
		t.Helper()
		return w.decide(at, d, backend.Request{Min: n, Max: n}, takes, at)
	}

	w.key = "rejected"
	now(4, byTake)
	now(2, byTake) // too few are left
	for range grantsToForget {
		at += 3_000_000
		now(4, byDecide)
	}
	now(1, byTake)

	w.key = "others"
	now(6, byDecide) // more than there can be
	w.key = "asks"
	w.decide(at, d, backend.Request{}, byDecide, at)
	w.key = "charges"
	w.decide(at, d, backend.Request{Op: backend.OpCharge, Max: 1}, byDecide, at)

	w.key = "version"
	old := *d
	now(1, byTake)
	d.Version++
	w.define(d)
	b := now(1, byTake)
	assert.Equal(t, backend.OutdatedState, b.Outcome)
	done, err := replaceOne(t.Context(), w.b, d, w.key, *b.Stored, d.Convert(*b.Stored))
	require.NoError(t, err)
	require.True(t, done)
	w.s[[2]string{d.Name, w.key}] = d.Convert(*b.Stored).State
	now(1, byDecide)
	w.key = "version of others"
	assert.Equal(t, backend.OutdatedDefinition, w.decide(at, &old, backend.Request{Min: 1, Max: 1}, byTake, 0).Outcome)

	w.key = "steps"
	at = someTime + 100_050_000
	now(1, byTake)
	row := at
	at -= 100_000 // behind the line: time stands still
	w.decide(at, d, backend.Request{Min: 1, Max: 1}, byTake, row)
	at -= 1
	now(1, byTake)

	w.key = "replaced" // it is as if it had been decided when its line began
	at = someTime + 140_000_000
	now(1, byTake)
	s := w.s[[2]string{d.Name, w.key}]
	next := s
	next.Line += 3
	done, err = replaceOne(t.Context(), w.b, d, w.key, d.Stored(s), d.Stored(next))
	require.NoError(t, err)
	require.True(t, done)
	w.s[[2]string{d.Name, w.key}] = next
	at += 3_000_000 - 100_000
	w.decide(at, d, backend.Request{Min: 1, Max: 1}, byTake, at+100_000)

	unknown := *d
	unknown.Name = "unknown"
	batch := take(&unknown, "k", 1)
	require.NoError(t, w.b.Decide(t.Context(), []*backend.Batch{batch}))
	assert.Equal(t, backend.Decided, batch.Outcome, "although the definition is not stored")
}

// Keys of several limiters are decided together, with numbers of all sizes, at random times, by both functions.
func TestTakes_Model(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	longest := int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		size := func(most int64) int64 { // each order of magnitude is as likely
			return 1 + r.Int64N(1+min(most-1, int64(1)<<r.IntN(52)))
		}
		var all []*backend.Definition
		for i := range 3 {
			l := rate.Schedule{Kind: rate.TokenBucket, Permits: size(backend.MaxPermits), Refill: size(backend.MaxPermits), Period: size(longest)}
			switch i {
			case 0:
				l.Kind, l.Refill = rate.FixedWindow, 0
			case 1:
				l.Permits, l.Refill, l.Period = 1+r.Int64N(9), 1+r.Int64N(3), 1_000_000
			}
			d := &backend.Definition{Name: fmt.Sprintf("%02d-%d", seed, i), Schedule: l, Version: 1}
			d.Anchor = []int64{0, someTime, -someTime, someTime + size(longest), -size(longest), size(someTime), someTime - 1, someTime + 1}[r.IntN(8)]
			all = append(all, w.define(d))
		}
		at := someTime
		for range 25 {
			w.b.setTime(at)
			var batches []*backend.Batch
			for _, d := range all {
				for _, key := range []string{"a", "b"} {
					if r.IntN(3) > 0 {
						batches = append(batches, &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{w.ask(r, d, key)}})
					}
				}
			}
			require.NoError(t, w.b.Decide(t.Context(), batches))
			for _, batch := range batches {
				require.Equal(t, backend.Decided, batch.Outcome, "%v", batch.Err)
				require.Equal(t, at, batch.Now)
				w.follow(batch)
			}
			at += size(max(all[r.IntN(3)].Period, 2)) * r.Int64N(3)
			if at > 1<<55 {
				break
			}
		}
	}
	assert.Greater(t, w.w.take.Load(), int64(300))
	assert.Greater(t, w.w.decide.Load(), int64(300))
}

// ask returns a request about a key: most are takes.
func (w *walk) ask(r *rand.Rand, d *backend.Definition, key string) backend.Request {
	n := 1 + r.Int64N(d.Permits)
	state := w.s[[2]string{d.Name, key}]
	switch r.IntN(12) {
	case 0:
		return backend.Request{Op: backend.OpCharge, Max: n}
	case 1:
		return backend.Request{Op: backend.OpRefund, Max: n, Receipt: d.Receipt(&state)}
	case 2:
		return backend.Request{Op: backend.OpReturnBlock, Max: n, Receipt: d.Receipt(&state)}
	case 3, 4:
		return backend.Request{Min: 1, Max: n, Block: true}
	case 5:
		return backend.Request{Min: n, Max: n, Block: true}
	case 6, 7:
		return backend.Request{Min: 1 + r.Int64N(n), Max: n}
	}
	return backend.Request{Min: n, Max: n}
}

// What the function take has taken is not lost if the call ends before the function decide answers.
func TestTakes_SecondStatementFails(t *testing.T) {
	w := newWalk(t)
	d := w.define(plainDefinition())
	w.b.setTime(someTime)
	ctx, cancel := context.WithCancel(t.Context())
	w.w.beforeDecide = cancel
	granted := take(d, "a", 2)
	charge := &backend.Batch{Definition: d, Key: "b", Requests: []backend.Request{{Op: backend.OpCharge, Max: 1}}}
	require.NoError(t, w.b.Decide(ctx, []*backend.Batch{granted, charge}))
	assert.Equal(t, backend.Decided, granted.Outcome)
	assert.Equal(t, []int64{2}, granted.Granted)
	assert.Equal(t, backend.Failed, charge.Outcome)
	assert.ErrorIs(t, charge.Err, context.Canceled)
	assert.ErrorIs(t, w.b.Decide(ctx, []*backend.Batch{charge}), context.Canceled)
}

// Another session has the row while the statement waits, at a later time and beyond a line.
func TestTakes_Wait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first    bool  // the row is new
		later    int64 // how much later the other one decides
		rollback bool
		now      int64
	}{
		"over a line":      {later: 60_000, now: 60_000},
		"long":             {later: 160_000},
		"for a rollback":   {later: 60_000, rollback: true},
		"for the first":    {first: true, later: 60_000, now: 60_000},
		"for no first one": {first: true, later: 60_000, rollback: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalk(t)
			w.key = "k"
			d := w.define(plainDefinition())
			at := someTime + 3_000_000 - 50_000
			if !c.first {
				w.decide(at-1, d, backend.Request{Min: 1, Max: 1}, true, at-1)
			}
			other := w.s[[2]string{d.Name, w.key}]
			tx, err := w.pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "select set_config('weirtest.now', $1, true)", fmt.Sprint(at+c.later))
			require.NoError(t, err)
			theirs := take(d, w.key, 2)
			var answer []int64
			args := []any{[]string{d.Name}, [][]byte{keyBytes(w.key)}, []int64{d.Version}, []int64{2}, []int64{2}, []bool{false}, "0"}
			require.NoError(t, tx.QueryRow(t.Context(), w.b.sql.take, args...).Scan(&answer))
			require.NoError(t, readAnswer(theirs, append(answer, 2)))
			require.Equal(t, at+c.later, theirs.Now)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if !assert.Eventually(t, func() bool {
					return count(t, w.pool, `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%"' || $1 || '".take(%'`, w.b.schema) == 1
				}, 20*time.Second, time.Millisecond) {
					assert.NoError(t, tx.Rollback(context.Background()))
				} else if c.rollback {
					assert.NoError(t, tx.Rollback(context.Background()))
				} else {
					assert.NoError(t, tx.Commit(context.Background()))
				}
			}()
			if !c.rollback {
				if c.first {
					other = d.Full(theirs.Now)
				}
				d.Decide(&other, theirs.Now, theirs.Requests, make([]int64, 1))
				w.s[[2]string{d.Name, w.key}] = other
				assert.Equal(t, other, theirs.State)
			}
			w.decide(at, d, backend.Request{Min: 1, Max: 1}, true, at+c.now)
			<-done
		})
	}
}

// A key whose row stays locked is waited for once.
func TestTakes_LockedKey(t *testing.T) {
	w := newWalk(t)
	d := w.define(plainDefinition())
	w.b.setTime(someTime)
	require.NoError(t, w.b.Decide(t.Context(), []*backend.Batch{take(d, "k", 1)}))
	defer lockRow(t, w.b.Backend, w.pool, "states", "k")()
	w.w.take.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	batch := take(d, "k", 1)
	require.NoError(t, w.b.Decide(ctx, []*backend.Batch{batch}))
	assert.Equal(t, backend.Failed, batch.Outcome)
	assert.ErrorIs(t, batch.Err, errLocked)
	assert.EqualValues(t, 1, w.w.take.Load())
	assert.Zero(t, w.w.decide.Load())
}

// While another session holds a row, takes of several windows queue. They must not each get the permits of their own.
func TestTakes_LongWait(t *testing.T) {
	t.Parallel()
	b, pool := shared(t)
	d := &backend.Definition{Name: "w", Version: 1, Schedule: rate.Schedule{Kind: rate.FixedWindow, Permits: 5, Period: 300_000}}
	done, err := b.Define(t.Context(), 0, d)
	require.NoError(t, err)
	require.True(t, done)
	require.NoError(t, b.Decide(t.Context(), []*backend.Batch{take(d, "k", 1)}))
	unlock := lockRow(t, b, pool, "states", "k")
	var all sync.WaitGroup
	var granted atomic.Int64
	for range 4 {
		all.Go(func() {
			batch := take(d, "k", 5)
			if assert.NoError(t, b.Decide(context.Background(), []*backend.Batch{batch})) {
				granted.Add(max(batch.Granted[0], 0))
			}
		})
		time.Sleep(350 * time.Millisecond)
	}
	first := time.Now()
	unlock()
	all.Wait()
	windows := int64(time.Since(first)/(300*time.Millisecond)) + 2
	assert.LessOrEqual(t, granted.Load(), 5*windows)
}

// A request that has waited for its row is decided by the definition that is in force then.
func TestDecide_WaitsWhileItIsDefined(t *testing.T) {
	t.Parallel()
	b, pool := shared(t)
	d := stored(t, b, "it", 10, 1, 1e9)
	require.NoError(t, b.Decide(t.Context(), []*backend.Batch{take(d, "k", 1)}))
	unlock := lockRow(t, b, pool, "states", "k")
	batch := take(d, "k", 1)
	batch.Requests = append(batch.Requests, batch.Requests[0]) // so that the function decide decides
	var waiting sync.WaitGroup
	waiting.Go(func() { assert.NoError(t, b.Decide(context.Background(), []*backend.Batch{batch})) })
	for count(t, pool, "select count(*) from pg_locks where not granted") == 0 {
		time.Sleep(time.Millisecond)
	}
	done, err := b.Define(t.Context(), d.Version, d.WithLimits(rate.Schedule{Kind: rate.TokenBucket, Permits: 1, Refill: 1, Period: 1e9}, d.Version+1))
	require.NoError(t, err)
	require.True(t, done)
	unlock()
	waiting.Wait()
	assert.Equal(t, backend.OutdatedDefinition, batch.Outcome)
}

// By the server's clock and under contention, all that was granted is what Definition.Decide grants, one after the
// other.
func TestTakes_ConcurrentSafe(t *testing.T) {
	t.Parallel()
	b, _ := shared(t)
	for _, d := range []*backend.Definition{
		bucket(t, b, "a", 40, 3, 700),
		bucket(t, b, "b", 1_000_000, 2, 5_000),
		{Name: "c", Version: 1, Schedule: rate.Schedule{Kind: rate.FixedWindow, Permits: 30, Period: 20_000}},
	} {
		done, err := b.Define(t.Context(), 0, d)
		require.NoError(t, err)
		require.True(t, done)
		var mu sync.Mutex
		var granted []*backend.Batch
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 150 {
					batch := take(d, "", 1)
					if !assert.NoError(t, b.Decide(context.Background(), []*backend.Batch{batch})) {
						return
					}
					if batch.Granted[0] == 1 {
						mu.Lock()
						granted = append(granted, batch)
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		slices.SortFunc(granted, func(x, y *backend.Batch) int {
			if x.State.Line != y.State.Line {
				return int(x.State.Line - y.State.Line)
			}
			return int(x.State.Missing - y.State.Missing)
		})
		s := d.Full(granted[0].Now)
		for _, batch := range granted {
			ok := make([]int64, 1)
			d.Decide(&s, batch.Now, batch.Requests, ok)
			require.EqualValues(t, 1, ok[0])
			require.Equal(t, s, batch.State)
		}
	}
}

func replaceOne(ctx context.Context, b backend.Backend, d *backend.Definition, key string, old, next backend.State) (bool, error) {
	r := &backend.Replacement{Definition: d, Key: key, Old: old, Next: next}
	err := b.Replace(ctx, []*backend.Replacement{r})
	return r.Done, err
}
