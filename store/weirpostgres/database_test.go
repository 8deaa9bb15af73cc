package weirpostgres

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

// A call has time for two round trips, and not for the handshake and the preparation of a statement.
func TestStore_ConnectsOverALongDistance(t *testing.T) {
	drill.Apart(t, func() {
		const callTimeout = time.Second
		server := postgres(t)
		schema := freshSchema(t, connect(t, server.URL, nil))
		proxy := testserver.NewProxy(t, server.Addr())
		proxy.Delay(callTimeout * 2 / 5 / 2) // in each direction
		pool := connect(t, strings.Replace(server.URL, server.Addr(), proxy.Addr(), 1), func(c *pgxpool.Config) { c.MaxConns = 4 })
		s, err := New(pool, &Options{Schema: schema, NoSweep: true, Options: store.Options{CallTimeout: callTimeout, NoListen: true}})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		l, err := s.FixedWindow("a", limiter.FixedWindowOptions{PermitLimit: 1 << 20, Window: time.Hour}, nil)
		require.NoError(t, err)
		inARow := 0
		require.Eventually(t, func() bool {
			lease, err := l.TryAcquire(t.Context(), 1)
			require.NoError(t, err)
			if inARow++; !lease.Acquired() {
				inARow = 0
			}
			assert.LessOrEqual(t, proxy.Connections(), 5)
			return inARow == 3
		}, time.Minute, time.Millisecond)
	})
}

// No call fails if the statements of a session are gone, or belong to another client of a pooler.
func TestBackend_SessionsThatKeepNoStatements(t *testing.T) {
	server := postgres(t)
	discard := func(c *pgxpool.Config) {
		c.AfterRelease = func(conn *pgx.Conn) bool {
			_, err := conn.Exec(context.Background(), "discard all")
			return err == nil
		}
	}
	for name, open := range map[string]func(*testing.T) *pgxpool.Pool{
		"discard all":    func(t *testing.T) *pgxpool.Pool { return connect(t, server.URL, discard) },
		"deallocate all": func(t *testing.T) *pgxpool.Pool { return connect(t, server.URL, nil) },
		"pooler without settings": func(t *testing.T) *pgxpool.Pool {
			return connect(t, testserver.NewPgBouncer(t, server, "default_pool_size = 3").URL, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := open(t)
			b := newBackend(t, pool, BackendOptions{Schema: freshSchema(t, connect(t, server.URL, nil))})
			d, slots := bucket(t, b, "a", 1000, 1, 3_600_000_000), concurrency(t, b, "c", 1000)
			var callers sync.WaitGroup
			for i := range 8 {
				callers.Go(func() {
					for j := range 25 {
						if name == "deallocate all" {
							exec(t, pool, name)
						}
						batch, key := take(d, "k", 1), fmt.Sprint(i, j)
						if assert.NoError(t, b.Decide(t.Context(), []*backend.Batch{batch})) {
							assert.Equal(t, backend.Decided, batch.Outcome, "%v", batch.Err)
						}
						assert.NoError(t, b.Decide(t.Context(), []*backend.Batch{take(d, key, 1), take(d, key+"-", 1)}))
						assert.NoError(t, b.Acquire(t.Context(), []*backend.LeaseRequest{lease(slots, key, key, 1)}))
					}
				})
			}
			callers.Wait()
			last := take(d, "k", 800)
			require.NoError(t, b.Decide(t.Context(), []*backend.Batch{last}))
			assert.EqualValues(t, 1000, last.State.Missing, "each was decided once")
		})
	}
}

// A tracer calls the hooks that are set.
type tracer struct{ prepare, query atomic.Pointer[func()] }

func (h *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if f := h.query.Load(); f != nil {
		(*f)()
	}
	return ctx
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (h *tracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	if f := h.prepare.Load(); f != nil {
		(*f)()
	}
	return ctx
}

func (*tracer) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// traced returns a Backend whose pool has one connection and a tracer.
func traced(t testing.TB, o BackendOptions) (*Backend, *tracer) {
	server := postgres(t)
	o.Schema = freshSchema(t, connect(t, server.URL, nil))
	h := &tracer{}
	pool := connect(t, server.URL, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 1, h })
	return newBackend(t, pool, o), h
}

var misbehaviors = map[string]func(){
	"panic":  func() { panic("bad") },
	"Goexit": runtime.Goexit,
}

// The call fails, and the pool keeps its only connection.
func TestBackend_PrepareTracerThatMisbehaves(t *testing.T) {
	for name, misbehave := range misbehaviors {
		t.Run(name, func(t *testing.T) {
			b, h := traced(t, BackendOptions{NoSweep: true})
			d := bucket(t, b, "a", 5, 1, 3_600_000_000)
			ask := func(ctx context.Context) error { return b.Decide(ctx, []*backend.Batch{take(d, "k", 1)}) }

			h.prepare.Store(&misbehave)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			require.ErrorIs(t, ask(ctx), errHook)

			left, leave := context.WithCancel(ctx)
			late := func() {
				leave() // the call ends, and nothing but the goroutine has the connection
				misbehave()
			}
			h.prepare.Store(&late)
			require.Error(t, ask(left))

			h.prepare.Store(nil)
			require.NoError(t, ask(ctx))
		})
	}
}

// There is another sweep after one that a tracer has ended.
func TestBackend_SweepWithTracerThatMisbehaves(t *testing.T) {
	for name, misbehave := range misbehaviors {
		t.Run(name, func(t *testing.T) {
			b, h := traced(t, BackendOptions{})
			var sweeps atomic.Int64
			bad := func() {
				sweeps.Add(1)
				misbehave()
			}
			h.query.Store(&bad)
			for want := range int64(3) {
				b.sweeper.decided(maxDecisions)
				require.Eventually(t, func() bool { return !b.sweeper.busy.Load() }, time.Minute, time.Millisecond)
				require.Equal(t, want+1, sweeps.Load())
			}
			h.query.Store(nil)
		})
	}
}
