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

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// ways counts which way decisions went.
type ways struct{ statement, function atomic.Int64 }

func (w *ways) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	switch {
	case strings.HasPrefix(q.SQL, "insert into "):
		w.statement.Add(1)
	case strings.Contains(q.SQL, ".decide("):
		w.function.Add(1)
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
	url := testserver.Postgres(t).URL
	w.pool = connect(t, url, nil)
	schema := freshSchema(t, w.pool)
	steerable(t, w.pool, schema)
	w.b = newSteered(t, url, schema, func(c *pgxpool.Config) { c.ConnConfig.Tracer = &w.w })
	t.Cleanup(func() { assert.NoError(t, w.b.Close()) })
	return w
}

const (
	byStatement = 10
	byFunction  = 1
	byBoth      = byStatement + byFunction
)

// decide expects that the batch is decided at that time of the server, in that way, as if it had been at the moment now.
func (w *walk) decide(at int64, d *backend.Definition, ask backend.Request, way int, now int64) *backend.Batch {
	w.t.Helper()
	w.b.setTime(at)
	w.w.statement.Store(0)
	w.w.function.Store(0)
	batch := &backend.Batch{Definition: d, Key: w.key, Requests: []backend.Request{ask}, Granted: make([]int64, 1)}
	require.NoError(w.t, w.b.Decide(w.t.Context(), []*backend.Batch{batch}))
	assert.Equal(w.t, way, int(w.w.statement.Load())*byStatement+int(w.w.function.Load()), "the way")
	assert.Equal(w.t, now, batch.Now)
	w.follow(batch)
	return batch
}

// define stores d, of which the plain statement reads the limits.
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
	at := [2]string{batch.Definition.Name, w.key}
	s, ok := w.s[at]
	if !ok {
		s = batch.Definition.Full(batch.Now)
	}
	if batch.Outcome != backend.Decided {
		return
	}
	granted := make([]int64, 1)
	batch.Definition.Decide(&s, batch.Now, batch.Requests, granted)
	w.s[at] = s
	assert.Equal(w.t, granted, batch.Granted)
	assert.Equal(w.t, w.s[at], batch.State)
}

func n(n int64) backend.Request { return backend.Request{Min: n, Max: n} }

// definitions of what the plain statement decides, with lines that are a second apart.
func plainDefinitions(now int64) []*backend.Definition {
	var all []*backend.Definition
	for _, l := range []rate.Schedule{
		{Kind: rate.TokenBucket, Permits: 5, Refill: 2, Period: 1_000_000},
		{Kind: rate.FixedWindow, Permits: 5, Period: 1_000_000},
	} {
		all = append(all, backend.NewDefinition(l.Kind.String(), l, now))
	}
	return all
}

const someTime = int64(2_000_000_000_000_000)

func TestTakes(t *testing.T) {
	w := newWalk(t)
	for _, d := range plainDefinitions(someTime) {
		t.Run(d.Name, func(t *testing.T) {
			w.t = t
			w.define(d)
			at := someTime + 500_000
			now := func(n int64, way int) *backend.Batch {
				t.Helper()
				return w.decide(at, d, backend.Request{Min: n, Max: n}, way, at)
			}

			w.key = "granted"
			now(2, byStatement) // the first row
			now(3, byStatement)
			at += 1_000_000 // a line
			now(2, byStatement)
			at += 10_000_000
			now(5, byStatement)

			w.key = "rejected"
			now(6, byFunction) // more than there can be: nothing is written
			now(4, byFunction) // which counts as a rejection, for a while
			for range grantsToForget - 1 {
				at += 3_000_000
				now(4, byFunction)
			}
			now(1, byStatement)
			now(1, byBoth) // nothing is left
			now(1, byFunction)

			w.key = "refunded"
			at += 1_000_000
			now(3, byStatement)
			back := w.s[[2]string{d.Name, w.key}]
			refund := backend.Request{Op: backend.OpRefund, Max: 3, Receipt: d.Receipt(&back)}
			w.decide(at, d, refund, byFunction, at)
			now(4, byStatement)
			at += 1_000_000
			now(1, byStatement)
			at += 1_000_000
			now(2, byStatement)
			at += 2_000_000
			now(5, byStatement)

			w.key = "version"
			old := d
			now(1, byStatement)
			newer := *d
			newer.Version++
			d = w.define(&newer)
			b := now(1, byBoth)
			assert.Equal(t, backend.OutdatedState, b.Outcome)
			done, err := replaceOne(t.Context(), w.b, d, w.key, *b.Stored, d.Convert(*b.Stored))
			require.NoError(t, err)
			require.True(t, done)
			w.s[[2]string{d.Name, w.key}] = d.Convert(*b.Stored).State
			for range grantsToForget {
				at += 1_000_000
				now(1, byFunction)
			}
			now(1, byStatement)
			d = old
			assert.Equal(t, backend.OutdatedDefinition, w.decide(at, d, n(1), byBoth, 0).Outcome)
			d = &newer

			w.key = "steps"
			at = someTime + 20_000_000 + 50_000
			now(1, byStatement)
			row := at
			at -= 100_000 // behind the line: time stands still
			w.decide(at, d, n(1), byStatement, row)
			at -= 1
			w.decide(at, d, n(1), byBoth, at)
			at -= 5_000_000
			now(1, byFunction)

			w.key = "replaced" // it is as if it had been decided when its line began
			at = someTime + 40_000_000
			now(1, byStatement)
			s := w.s[[2]string{d.Name, w.key}]
			next := s
			next.Line += 3
			done, err = replaceOne(t.Context(), w.b, d, w.key, d.Stored(s), d.Stored(next))
			require.NoError(t, err)
			require.True(t, done)
			w.s[[2]string{d.Name, w.key}] = next
			at += 3_000_000 - 100_000
			w.decide(at, d, n(1), byStatement, at+100_000)
			at += 100_001
			now(1, byStatement)
		})
	}
}

func TestTakes_OnlyTakes(t *testing.T) {
	w := newWalk(t)
	d := w.define(plainDefinitions(someTime)[0])
	at := someTime
	for i, ask := range []backend.Request{
		{Max: 2}, {}, {Min: 1, Max: 1, Block: true}, {Op: backend.OpCharge, Min: 1, Max: 1}, {Min: -1, Max: -1},
		{Op: backend.OpRefund, Min: 1, Max: 1}, {Op: backend.OpReturnBlock, Min: 1, Max: 1},
	} {
		w.key = string(rune('a' + i))
		w.decide(at, d, ask, byFunction, at)
	}
	w.key = "lent"
	w.decide(at, d, n(1), byStatement, at)
	w.decide(at, d, backend.Request{Min: 2, Max: 2, Block: true}, byFunction, at)
	b := w.decide(at, d, n(1), byBoth, at)
	assert.EqualValues(t, 3, b.State.Floor)
	for range grantsToForget - 1 {
		at += 1_000_000
		w.decide(at, d, n(1), byFunction, at)
	}
	w.decide(at, d, n(1), byStatement, at) // lines have brought the block back
	sliding := *d
	sliding.Name, sliding.Kind, sliding.Refill, sliding.Segments = "sliding", rate.SlidingWindow, 0, 3
	w.decide(at, &sliding, n(1), byFunction, at)

	pool := connect(t, testserver.Postgres(t).URL+"&default_query_exec_mode=exec", nil)
	assert.False(t, newBackend(t, pool, BackendOptions{}).prepares, "it would be planned each time")
}

// Keys of several limiters go together, also keys that the plain statement does not decide.
func TestTakes_Together(t *testing.T) {
	w := newWalk(t)
	r := rand.New(rand.NewPCG(3, 4))
	all := plainDefinitions(someTime)
	sliding := *all[0]
	sliding.Name, sliding.Kind, sliding.Refill, sliding.Segments = "sliding", rate.SlidingWindow, 0, 3
	all = append(all, &sliding)
	slices.SortFunc(all, func(x, y *backend.Definition) int { return strings.Compare(x.Name, y.Name) })
	for _, d := range all {
		w.define(d)
	}
	at, together := someTime, 0
	for range 300 {
		at += r.Int64N(700_000)
		w.b.setTime(at)
		var batches []*backend.Batch
		for _, d := range all {
			for _, key := range []string{"a", "b", "c"} {
				if r.IntN(2) > 0 {
					continue
				}
				ask := backend.Request{Min: 1, Max: 1 + r.Int64N(3)}
				if r.IntN(6) == 0 {
					ask = backend.Request{Op: backend.OpCharge, Max: 1}
				}
				batches = append(batches, &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{ask}, Granted: make([]int64, 1)})
			}
		}
		w.w.statement.Store(0)
		require.NoError(t, w.b.Decide(t.Context(), batches))
		together += len(batches) * int(w.w.statement.Load())
		for _, batch := range batches {
			w.key = batch.Key
			require.Equal(t, backend.Decided, batch.Outcome)
			require.Equal(t, at, batch.Now)
			w.follow(batch)
		}
	}
	assert.Greater(t, together, 300)
}

// What the plain statement has taken is not lost if the function fails.
func TestTakes_FunctionFails(t *testing.T) {
	w := newWalk(t)
	d := w.define(plainDefinitions(someTime)[0])
	w.b.setTime(someTime)
	exec(t, w.pool, `alter function "`+w.b.schema+`".decide rename to gone`)
	granted := take(d, "a", 2)
	charge := &backend.Batch{Definition: d, Key: "b", Requests: []backend.Request{{Op: backend.OpCharge, Max: 1}}, Granted: make([]int64, 1)}
	require.NoError(t, w.b.Decide(t.Context(), []*backend.Batch{granted, charge}))
	assert.Equal(t, backend.Decided, granted.Outcome)
	assert.Equal(t, []int64{2}, granted.Granted)
	assert.Equal(t, backend.Failed, charge.Outcome)
	assert.Equal(t, undefinedFunction, codeOf(charge.Err))
	assert.Equal(t, undefinedFunction, codeOf(w.b.Decide(t.Context(), []*backend.Batch{charge})))
}

// Numbers of all sizes, at random times that go on.
func TestTakes_Exact(t *testing.T) {
	w := newWalk(t)
	r := rand.New(rand.NewPCG(1, 2))
	size := func(most int64) int64 { // each order of magnitude is as likely
		return 1 + r.Int64N(1+min(most-1, int64(1)<<r.IntN(52)))
	}
	const most, longest = 1 << 50, int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	for i := range 60 {
		l := rate.Schedule{Kind: rate.TokenBucket, Permits: size(most), Refill: size(most), Period: size(longest)}
		if i%3 == 0 {
			l.Kind, l.Refill = rate.FixedWindow, 0
		}
		d := &backend.Definition{Name: string(rune('a' + i)), Schedule: l, Version: 1}
		at := someTime
		d.Anchor = []int64{0, at, -at, at + size(longest), -size(longest), size(at), at - 1, at + 1}[r.IntN(8)]
		w.define(d)
		for range 20 {
			w.b.setTime(at)
			batch := take(d, "", min(d.Permits, size(d.Permits)))
			batch.Granted = make([]int64, 1)
			w.key = d.Name
			undecided, err := w.b.sendTakes(t.Context(), []*backend.Batch{batch})
			require.NoError(t, err, "%+v", d)
			done := len(undecided) == 0
			s, ok := w.s[[2]string{d.Name, w.key}]
			if !ok {
				s = d.Full(at)
			}
			granted := make([]int64, 1)
			d.Decide(&s, at, batch.Requests, granted)
			require.Equal(t, granted[0] > 0, done, "%+v at %d from %+v", d, at, w.s[[2]string{d.Name, w.key}])
			if done {
				require.Equal(t, at, batch.Now)
				require.Equal(t, s, batch.State, "%+v", d)
				w.s[[2]string{d.Name, w.key}] = s
			}
			at += size(max(d.Period, 2)) * r.Int64N(3)
			if at > 1<<55 {
				break
			}
		}
	}
}

// Another session has the row while the statement waits, at a later time and beyond a line.
func TestTakes_Wait(t *testing.T) {
	for name, c := range map[string]struct {
		first    bool  // the row is new
		later    int64 // how much later the other one decides
		rollback bool
		way      int
		now      int64
	}{
		"over a line":      {later: 60_000, way: byStatement, now: 60_000},
		"long":             {later: 160_000, way: byBoth, now: 0},
		"for a rollback":   {later: 60_000, rollback: true, way: byStatement, now: 0},
		"for the first":    {first: true, later: 60_000, way: byStatement, now: 60_000},
		"for no first one": {first: true, later: 60_000, rollback: true, way: byStatement, now: 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWalk(t)
			w.key = "k"
			d := w.define(plainDefinitions(someTime)[0])
			at := someTime + 3_000_000 - 50_000
			if !c.first {
				w.decide(at-1, d, n(1), byStatement, at-1)
			}
			other := w.s[[2]string{d.Name, w.key}]
			tx, err := w.pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "select set_config('weirtest.now', $1, true)", fmt.Sprint(at+c.later))
			require.NoError(t, err)
			theirs := take(d, w.key, 2)
			var line, missing, refunded, now int64
			args := []any{[]string{d.Name}, [][]byte{keyBytes(w.key)}, []int64{d.Version}, []int64{2}, "0"}
			require.NoError(t, tx.QueryRow(t.Context(), w.b.sql.take, args...).Scan(nil, nil, &line, &missing, &refunded, &now))
			require.Equal(t, at+c.later, now)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if !assert.Eventually(t, func() bool {
					return count(t, w.pool, `select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%"' || $1 || '".states%'`, w.b.schema) == 1
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
					other = d.Full(now)
				}
				d.Decide(&other, now, theirs.Requests, make([]int64, 1))
				w.s[[2]string{d.Name, w.key}] = other
				assert.Equal(t, []int64{other.Line, other.Missing}, []int64{line, missing})
			}
			w.decide(at, d, n(1), c.way, at+c.now)
			<-done
		})
	}
}

// A key whose row stays locked is waited for once.
func TestTakes_LockedKey(t *testing.T) {
	w := newWalk(t)
	d := w.define(plainDefinitions(someTime)[0])
	w.b.setTime(someTime)
	require.NoError(t, w.b.Decide(t.Context(), []*backend.Batch{take(d, "k", 1)}))
	defer lockRow(t, w.b.Backend, w.pool, "states", "k")()
	w.w.statement.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	batch := take(d, "k", 1)
	require.NoError(t, w.b.Decide(ctx, []*backend.Batch{batch}))
	assert.Equal(t, backend.Failed, batch.Outcome)
	assert.ErrorIs(t, batch.Err, errLocked)
	assert.EqualValues(t, 1, w.w.statement.Load())
	assert.Zero(t, w.w.function.Load())
}

// While another session holds a row, takes of several windows queue. They must not each get the permits of their own.
func TestTakes_LongWait(t *testing.T) {
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

// By the server's clock and under contention, all that was granted is what Definition.Decide grants, one after the
// other.
func TestTakes_ConcurrentSafe(t *testing.T) {
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
