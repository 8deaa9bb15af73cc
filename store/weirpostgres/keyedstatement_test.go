package weirpostgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	t.Parallel()
	const n, locked = 40, 17
	within := func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 2*time.Second) }
	key := func(i int) string { return fmt.Sprintf("k%02d", i) }

	t.Run("Decide", func(t *testing.T) {
		b, pool := shared(t)
		d := stored(t, b, "a", 1<<20, 1, 3_600_000_000)
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
		for round := range 3 {
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
		d := stored(t, b, "a", 1<<20, 1, 3_600_000_000)
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
		d := stored(t, b, "a", 1<<20, 1, 3_600_000_000)
		var all []*backend.Replacement
		for _, k := range []string{"a", "b", "c"} {
			batch := take(d, k, 1)
			require.NoError(t, b.Decide(t.Context(), []*backend.Batch{batch}))
			all = append(all, &backend.Replacement{Definition: d, Key: k, Old: d.Stored(batch.State), Next: d.Stored(batch.State)})
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

// A question is one key of a statement that fails in some way.
type question struct {
	backend.Result
	alone  bool          // the statement fails because of this key
	lost   bool          // the connection breaks
	locked bool          // the row is locked forever
	free   time.Duration // the row is free after so long
	asked  int
}

var (
	errOfKey = &pgconn.PgError{Code: "22003"}
	errLost  = errors.New("the connection broke")
)

// A table answers questions as the server does.
type table struct {
	sent int
	held time.Duration // how long statements about several keys have waited
}

func (s *table) send(_ context.Context, all []*question, wait lockWaiting) error {
	s.sent++
	for _, q := range all {
		q.asked++
		switch {
		case q.alone:
			return errOfKey
		case q.lost && (len(all) == 1 || all[0] == q):
			return errLost
		case !wait.skips && (q.locked || q.free > wait.longest):
			if len(all) > 1 {
				s.held += wait.longest
			}
			time.Sleep(wait.longest)
			return &pgconn.PgError{Code: lockNotAvailable}
		}
		if q.Outcome = backend.Decided; wait.skips && (q.locked || q.free > 0) {
			q.Outcome = undecided
		}
	}
	return nil
}

// asking returns a statement about a table, and the Backend to which it belongs.
func asking() (keyedStatement[*question], *table) {
	var s table
	return keyedStatement[*question]{&expiredWait{}, s.send, s.send}, &s
}

// What keys have taken counts, though the connection breaks while the others are asked about.
func TestKeyedStatement_LateErrorIsThatOfTheKeysItHit(t *testing.T) {
	asking, _ := asking()
	t.Run("after others", func(t *testing.T) {
		all := []*question{{}, {locked: true, lost: true}, {}}
		asking.locks.until.Store(math.MaxInt64)
		require.NoError(t, asking.run(t.Context(), all))
		asking.locks.until.Store(0)
		for i, want := range []error{nil, errLost, nil} {
			require.Equal(t, want, all[i].Err, i)
		}
	})
	t.Run("before others", func(t *testing.T) {
		require.ErrorIs(t, asking.run(t.Context(), []*question{{lost: true}, {}, {alone: true}, {}}), errLost)
	})
	t.Run("one by one", func(t *testing.T) {
		all := []*question{{}, {alone: true}, {}, {lost: true}}
		err := asking.run(t.Context(), all)
		if err != nil {
			require.ErrorIs(t, err, errLost)
			return // the first that was asked about
		}
		for i, want := range []error{nil, errOfKey, nil, errLost} {
			require.Equal(t, want, all[i].Err, i)
		}
	})
}

// Many rows that stay locked neither keep a key from being asked about nor take all the time there is. Statements about other keys
// wait for them once, and not for long.
func TestKeyedStatement_SendsEachLockedKeyOnce(t *testing.T) {
	for _, keys := range []int{40, 1000} {
		synctest.Test(t, func(t *testing.T) {
			asking, server := asking()
			asking.locks.until.Store(math.MinInt64) // here it is the year 2000
			all := []*question{{}, {free: minSingleWait}}
			for len(all) < keys {
				all = append(all, &question{locked: true})
			}
			for i := range 2 {
				server.sent, server.held = 0, 0
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				begun := time.Now()
				require.NoError(t, asking.run(ctx, all))
				require.LessOrEqual(t, time.Since(begun), server.held+250*time.Millisecond+minSingleWait)
				require.Equal(t, []time.Duration{maxSharedWait, 0}[i], server.held)
				require.Equal(t, backend.Decided, all[0].Outcome)
				for _, q := range all[2:] {
					require.ErrorIs(t, q.Err, errLocked)
				}
				if keys == 40 {
					require.Equal(t, backend.Decided, all[1].Outcome)
					require.Equal(t, []int{keys + 1, keys}[i], server.sent)
				}
			}
			require.Equal(t, 3, all[0].asked)
		})
	}
}

// While a row is locked, every other key of the limiter is decided all the time, and the store is not lost.
func TestStore_LockedRowIsTheTroubleOfItsKey(t *testing.T) {
	drill.Apart(t, func() {
		server := postgres(t)
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
	drill.Apart(t, func() {
		pool := connect(t, postgres(t).URL, nil)
		schema := freshSchema(t, pool)
		s, err := New(pool, &Options{Schema: schema, Options: store.Options{CallTimeout: 2 * time.Second}})
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
			select 'fresh', version, kind, permits, period, refill, segments, anchor, anchor_in_force, every, zone, terms
			from "weir".definitions`, schema))
		require.NoError(t, err)
		for range 2 {
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
	spoilt.Terms = "\x00"
	_, err = b.Define(t.Context(), 0, spoilt)
	require.ErrorIs(t, err, backend.ErrDefinition)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Define(ended, 0, bucket(t, b, "a", 5, 1, 1_000_000))
	require.Error(t, err)
	require.NotErrorIs(t, err, backend.ErrDefinition)
}
