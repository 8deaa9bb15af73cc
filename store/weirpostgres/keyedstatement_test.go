package weirpostgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

// lockRow locks a row of a table in a session of its own. The function that it returns ends the lock.
func lockRow(t testing.TB, b *Backend, pool *pgxpool.Pool, table, key string) (unlock func()) {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), pgmigrate.InSchema(`select from "weir".`+table+` where key = $1 for update`, b.schema), []byte(key))
	require.NoError(t, err)
	require.NotZero(t, tag.RowsAffected())
	return func() { require.NoError(t, tx.Rollback(context.Background())) }
}

func TestBackend_LockedRowIsTheTroubleOfItsKey(t *testing.T) {
	const n, locked = 40, 17
	within := func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 2*time.Second) }
	key := func(i int) string { return fmt.Sprintf("k%02d", i) }

	t.Run("Decide", func(t *testing.T) {
		b, pool := shared(t)
		d := bucket(t, b, "a", 1<<20, 1, 3_600_000_000)
		ask := func() []*backend.Batch {
			t.Helper()
			var all []*backend.Batch
			for i := range n {
				all = append(all, take(d, key(i), 1))
			}
			ctx, cancel := within()
			defer cancel()
			require.NoError(t, b.Decide(ctx, all))
			return all
		}
		ask()
		unlock := lockRow(t, b, pool, "states", key(locked))
		for round := range 5 {
			for i, batch := range ask() {
				if i == locked {
					require.Equal(t, backend.Failed, batch.Outcome)
					require.ErrorIs(t, batch.Err, errLocked)
				} else {
					require.Equal(t, backend.Decided, batch.Outcome, batch.Key)
					require.EqualValues(t, round+2, batch.State.Missing, "it is decided once")
				}
			}
		}
		for range 2 { // one by one, by the plain statement
			ctx, cancel := within()
			one := take(d, key(locked), 1)
			require.NoError(t, b.Decide(ctx, []*backend.Batch{one}))
			cancel()
			require.Equal(t, backend.Failed, one.Outcome)
		}
		unlock()
		for i, batch := range ask() {
			require.Equal(t, backend.Decided, batch.Outcome, batch.Key)
			if i == locked {
				require.EqualValues(t, 2, batch.State.Missing, "what has failed has taken nothing")
			}
		}
	})

	t.Run("Decide, a key that another session is inserting", func(t *testing.T) {
		b, pool := shared(t)
		d := bucket(t, b, "a", 1<<20, 1, 3_600_000_000)
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), pgmigrate.InSchema(`insert into "weir".states values ('a', $1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0)`, b.schema), []byte("b"))
		require.NoError(t, err)
		all := []*backend.Batch{take(d, "a", 1), take(d, "b", 1), take(d, "c", 1), take(d, "d", 1)}
		ctx, cancel := within()
		defer cancel()
		require.NoError(t, b.Decide(ctx, all))
		for i, batch := range all {
			require.Equal(t, i == 1, batch.Outcome == backend.Failed, batch.Key)
		}
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, b.Decide(t.Context(), all))
		for i, batch := range all {
			require.Equal(t, backend.Decided, batch.Outcome, batch.Key)
			require.EqualValues(t, map[bool]int{true: 1, false: 2}[i == 1], batch.State.Missing, batch.Key)
		}
	})

	t.Run("Replace", func(t *testing.T) {
		b, pool := shared(t)
		d := bucket(t, b, "a", 1<<20, 1, 3_600_000_000)
		var all []*backend.Replacement
		for _, k := range []string{"a", "b", "c"} {
			batch := take(d, k, 1)
			require.NoError(t, b.Decide(t.Context(), []*backend.Batch{batch}))
			all = append(all, &backend.Replacement{Definition: d, Key: k, Old: batch.State, Next: batch.State})
		}
		unlock := lockRow(t, b, pool, "states", "b")
		defer unlock()
		ctx, cancel := within()
		defer cancel()
		require.NoError(t, b.Replace(ctx, all))
		for i, r := range all {
			require.Equal(t, i == 1, r.Outcome == backend.Failed, r.Key)
			require.Equal(t, i != 1, r.Done)
		}
	})

	t.Run("Hold, Renew and Release", func(t *testing.T) {
		b, pool := shared(t)
		d := concurrency(t, b, "c", 5)
		holds := func(id string) (all []*backend.LeaseRequest) {
			for _, k := range []string{"a", "b", "c"} {
				h := lease(d, k, id, 1)
				h.TTL = 60_000_000
				all = append(all, h)
			}
			return all
		}
		first := holds("first")
		require.NoError(t, b.Acquire(t.Context(), first))
		check := func(what string, all []*backend.LeaseRequest, do func(context.Context, []*backend.LeaseRequest) error) {
			t.Helper()
			ctx, cancel := within()
			defer cancel()
			require.NoError(t, do(ctx, all), what)
			for i, h := range all {
				require.Equal(t, i == 1, h.Outcome == backend.Failed, "%s %s", what, h.Key)
				require.True(t, i == 1 || h.OK, "%s %s", what, h.Key)
			}
		}
		unlock := lockRow(t, b, pool, "semaphores", "b")
		check("acquire", holds("second"), b.Acquire)
		unlock()
		unlock = lockRow(t, b, pool, "leases", "b")
		defer unlock()
		check("renew", first, b.Renew)
		check("release", first, b.Release)
	})
}

// What keys have taken counts, though the connection breaks while the others are asked about.
func TestKeyedStatement_LateErrorIsThatOfTheKeysItHit(t *testing.T) {
	var b Backend
	b.locks.init()
	type question struct {
		key, broken bool
		err         error
	}
	ofAKey, broken := &pgconn.PgError{Code: "22003"}, errors.New("the connection broke")
	asking := keyedStatement[*question]{
		b:     &b,
		check: func(*question) error { return nil },
		row:   func(q *question) row { return row{} },
		fail:  func(q *question, err error) { q.err = err },
		send: func(_ context.Context, all []*question, _ time.Duration) error {
			for _, q := range all {
				if q.key {
					return ofAKey
				}
			}
			if all[0].broken {
				return broken
			}
			return nil
		},
	}
	t.Run("after others", func(t *testing.T) {
		all := []*question{{}, {}, {key: true}, {broken: true}}
		require.NoError(t, asking.run(t.Context(), all))
		for i, want := range []error{nil, nil, ofAKey, broken} {
			require.Equal(t, want, all[i].err, i)
		}
	})
	t.Run("before others", func(t *testing.T) {
		all := []*question{{broken: true}, {}, {key: true}, {}}
		require.ErrorIs(t, asking.run(t.Context(), all), broken)
	})
	t.Run("one by one", func(t *testing.T) {
		all := []*question{{broken: true}, {broken: true}, {}, {}}
		err := asking.sendOneByOne(t.Context(), all, time.Second)
		if err != nil {
			require.ErrorIs(t, err, broken)
			return // the first that was asked about
		}
		for i, want := range []error{broken, broken, nil, nil} {
			require.Equal(t, want, all[i].err, i)
		}
	})
}

// A blocking is a question of which some keys cannot be answered at once. It records the statements.
type blocking struct {
	forever   map[string]bool // keys whose rows stay locked
	contended map[string]bool // keys whose rows are free after minSingleWait, like a row that another instance is writing
	asked     [][]string
	waits     []time.Duration
	outcomes  map[string]error
}

func (q *blocking) keyed(b *Backend) keyedStatement[string] {
	return keyedStatement[string]{
		b: b, probing: b.sql.probeStates,
		check: func(string) error { return nil },
		row:   func(key string) row { return row{"states", "a", key, ""} },
		fail:  func(key string, err error) { q.outcomes[key] = err },
		send: func(_ context.Context, keys []string, wait time.Duration) error {
			q.asked, q.waits = append(q.asked, keys), append(q.waits, wait)
			for _, key := range keys {
				if q.forever[key] || q.contended[key] && wait < minSingleWait {
					return &pgconn.PgError{Code: lockNotAvailable}
				}
			}
			for _, key := range keys {
				q.outcomes[key] = nil
			}
			return nil
		},
	}
}

// A row that another session is inserting cannot be seen. The other keys of the call are not asked about together
// with its key again and again, and the statements that find it leave the others time for ordinary contention.
func TestKeyedStatement_RowThatCannotBeSeen(t *testing.T) {
	b, _ := shared(t)
	q := &blocking{forever: map[string]bool{"k17": true}}
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("k%02d", i))
	}
	for call := range 3 {
		q.asked, q.waits, q.outcomes = nil, nil, map[string]error{}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		require.NoError(t, q.keyed(b).run(ctx, keys))
		cancel()
		require.Len(t, q.outcomes, len(keys))
		for key, err := range q.outcomes {
			require.Equal(t, q.forever[key], errors.Is(err, errLocked), key)
		}
		for i, wait := range q.waits {
			require.GreaterOrEqual(t, wait, minLockWait, "%d of call %d", i, call)
		}
		for _, asked := range q.asked {
			alone := call == 0 || len(asked) == 1 || !slices.Contains(asked, "k17")
			require.True(t, alone, "in call %d it is asked about with %d others", call, len(asked)-1)
		}
	}
}

// Many rows that stay locked do not keep a key from being asked about.
func TestKeyedStatement_SendsEachLockedKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backend
		b.locks.init()
		q := &blocking{forever: map[string]bool{}, contended: map[string]bool{"k00": true}, outcomes: map[string]error{}}
		var keys []string
		for i := range 40 {
			keys = append(keys, fmt.Sprintf("k%02d", i))
			q.forever[keys[i]] = i > 0
		}
		asking := q.keyed(&b)
		ask := asking.send
		asking.send = func(ctx context.Context, keys []string, wait time.Duration) error {
			err := ask(ctx, keys, wait)
			if err != nil {
				time.Sleep(wait)
			}
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		begun := time.Now()
		require.NoError(t, asking.sendOneByOne(ctx, keys, 25*time.Millisecond))
		require.Len(t, q.asked, len(keys))
		require.NoError(t, q.outcomes["k00"])
		require.LessOrEqual(t, time.Since(begun), 39*minSingleWait)

		q.asked, begun = nil, time.Now()
		for i := range 1000 {
			keys = append(keys, fmt.Sprint("l", i))
			q.forever[keys[len(keys)-1]] = true
		}
		left, _ := ctx.Deadline()
		require.NoError(t, asking.sendOneByOne(ctx, keys, 25*time.Millisecond))
		require.LessOrEqual(t, time.Since(begun), left.Sub(begun)/2+minSingleWait, "the call does not take all the time there is")
		require.ErrorIs(t, q.outcomes["l0"], errLocked)
	})
}

// While a row is locked, every other key of the limiter is decided all the time, and the store is not lost.
func TestStore_LockedRowIsTheTroubleOfItsKey(t *testing.T) {
	drill.Retried(t, func() {
		server := testserver.Postgres(t)
		pool := connect(t, server.URL, nil)
		schema := freshSchema(t, pool)
		var lost atomic.Int64
		s, err := New(pool, &Options{Schema: schema, Options: store.Options{CallTimeout: 5 * time.Second, OnEvent: func(e store.Event) {
			if e.Kind == store.EventStoreLost {
				lost.Add(1)
			}
		}}})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		l, err := s.PartitionedTokenBucket("a", limiter.TokenBucketOptions{TokenLimit: 1 << 20, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}, nil)
		require.NoError(t, err)
		b := newBackend(t, pool, BackendOptions{Schema: schema})
		const keys = 160 // for four batchers
		round := func() (unavailable int) {
			var failed atomic.Int64
			done := make(chan struct{})
			for i := range keys {
				go func() {
					defer func() { done <- struct{}{} }()
					lease, err := l.TryAcquire(context.Background(), fmt.Sprint("k", i), 1)
					assert.NoError(t, err)
					if !lease.Acquired() {
						failed.Add(1)
						assert.Equal(t, 7, i)
					}
				}()
			}
			for range keys {
				<-done
			}
			return int(failed.Load())
		}
		require.Zero(t, round())
		unlock := lockRow(t, b, pool, "states", "k7")
		for range 6 {
			require.Equal(t, 1, round())
		}
		unlock()
		require.Zero(t, round())
		require.Zero(t, lost.Load())
	})
}

// A change of a definition that another session keeps locked fails in time, and the store is not lost.
func TestStore_LockedDefinitionIsTheTroubleOfItsLimiter(t *testing.T) {
	drill.Retried(t, func() {
		pool := connect(t, testserver.Postgres(t).URL, nil)
		schema := freshSchema(t, pool)
		s, err := New(pool, &Options{Schema: schema})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		limits := func(n int) limiter.TokenBucketOptions {
			return limiter.TokenBucketOptions{TokenLimit: n, TokensPerPeriod: 1, ReplenishmentPeriod: time.Hour}
		}
		known, err := s.TokenBucket("known", limits(10), nil)
		require.NoError(t, err)
		fresh, err := s.TokenBucket("fresh", limits(10), nil)
		require.NoError(t, err)
		cause := func(l *store.Limiter) error {
			t.Helper()
			lease, err := l.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			why, _ := store.OutageKey.From(lease)
			require.Equal(t, why == nil, lease.Acquired())
			return why
		}
		require.NoError(t, cause(known))

		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), pgmigrate.InSchema(`select from "weir".definitions where name = 'known' for update`, schema))
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), pgmigrate.InSchema(`insert into "weir".definitions
			select 'fresh', version, kind, permits, period, refill, segments, anchor, reached, generation, explicit, made, made_by, past
			from "weir".definitions`, schema))
		require.NoError(t, err)
		for range 4 {
			require.ErrorIs(t, known.Reconfigure(limits(20)), backend.ErrDefinition)
			require.ErrorIs(t, cause(fresh), backend.ErrDefinition)
		}
		require.NoError(t, s.Health().Err)
		require.Zero(t, s.Counters().Failures)
		require.NoError(t, cause(known), "it is still decided by the definition in force")

		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, known.Reconfigure(limits(20)))
		require.NoError(t, cause(fresh))
	})
}

func TestBackend_DefinitionErrors(t *testing.T) {
	b, _ := shared(t)
	long := bucket(t, b, "a", 5, 1, 1_000_000)
	long.Name = strings.Repeat("n", maxName+1)
	_, _, err := b.Load(t.Context(), long.Name)
	require.ErrorIs(t, err, backend.ErrDefinition)
	_, err = b.Define(t.Context(), 0, long)
	require.ErrorIs(t, err, backend.ErrDefinition)
	spoilt := bucket(t, b, "a", 5, 1, 1_000_000)
	spoilt.By = "\x00"
	_, err = b.Define(t.Context(), 0, spoilt)
	require.ErrorIs(t, err, backend.ErrDefinition)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Define(ended, 0, bucket(t, b, "a", 5, 1, 1_000_000))
	require.Error(t, err)
	require.NotErrorIs(t, err, backend.ErrDefinition)
}
