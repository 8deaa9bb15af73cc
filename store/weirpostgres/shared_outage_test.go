package weirpostgres

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

func TestSharedOutages(t *testing.T) {
	drill.Apart(t, func() {
		s := drillSubject()
		server := testserver.NewPostgres(t, "fsync=off") // an answer must not wait for a busy disk
		for _, fault := range []drill.Fault{drill.Stalled(server), drill.Killed(server, true)} {
			place, _ := newPlace(t, server)
			drill.Outage(t, s, place, fault)
		}
		if testing.Short() {
			return
		}
		t.Run("an empty server", func(t *testing.T) {
			place, schema := newPlace(t, server)
			drill.Outage(t, s, place, emptied(server, schema))
		})
		direct, through, proxy := behindProxy(t, server)
		for _, fault := range append(drill.NetworkFaults(proxy), postgresFaults(server)...) {
			_, schema := newPlace(t, server)
			url, _, _ := strings.Cut(through, " ")
			drill.Outage(t, s, url+" "+schema, fault)
		}
		t.Run("an exhausted pool", func(t *testing.T) { exhausted(t, s, direct) })
		t.Run("cut all the time", func(t *testing.T) { drill.FrequentDisconnects(t, s, through, proxy) })
	})
}

// emptied: the server is there and has no schema, until Migrate is called.
func emptied(server *testserver.Server, schema string) drill.Fault {
	return drill.Fault{
		Name:      "restarted with an empty folder",
		LosesData: true,
		Begin: func(t testing.TB) {
			require.NoError(t, server.Restart(true))
			_, _, err := newBackend(t, connect(t, server.URL, nil), BackendOptions{Schema: schema}).Load(context.Background(), "x")
			require.ErrorContains(t, err, "call Migrate")
		},
		End: func(t testing.TB) {
			require.NoError(t, Migrate(context.Background(), connect(t, server.URL, nil), schema))
		},
	}
}

func postgresFaults(server *testserver.Server) []drill.Fault {
	// The connection exists before the fault, because none may be left afterwards.
	set := func(t testing.TB, admin *pgxpool.Pool, sql ...string) {
		t.Helper()
		for _, s := range sql {
			exec(t, admin, s)
		}
	}
	var admin *pgxpool.Pool
	all := "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'"
	return []drill.Fault{
		{
			Name:      "read-only",
			ErrorText: "read-only",
			Begin: func(t testing.TB) {
				set(t, connect(t, server.URL, nil), "alter system set default_transaction_read_only = on", "select pg_reload_conf()")
			},
			End: func(t testing.TB) {
				set(t, connect(t, server.URL, nil), "alter system reset default_transaction_read_only", "select pg_reload_conf()")
			},
		}, {
			// As if other clients had taken all connections. The real limit does not apply to superusers, as these tests are.
			Name: "no connections left",
			Begin: func(t testing.TB) {
				admin = connect(t, server.URL, nil)
				set(t, admin, "update pg_database set datallowconn = false where datname = current_database()", all)
			},
			End: func(t testing.TB) {
				set(t, admin, "update pg_database set datallowconn = true where datname = current_database()")
			},
		},
	}
}

// exhausted: the pool that the store was given has no connection left, because they are all in use.
func exhausted(t *testing.T, s drill.Subject, direct string) {
	pools := make(chan *pgxpool.Pool, 10)
	s.Open = func(place string) (backend.Backend, func(), error) {
		b, disconnect, err := openPlace(strings.Replace(place, " ", "&pool_max_conns=3 ", 1))
		if err == nil {
			pools <- b.(*Backend).pool
		}
		return b, disconnect, err
	}
	var taken []*pgxpool.Conn
	drill.Outage(t, s, direct, drill.Fault{
		Name: "by others",
		Begin: func(t testing.TB) {
			for len(pools) > 0 {
				pool := <-pools
				for range pool.Config().MaxConns {
					conn, err := pool.Acquire(context.Background())
					require.NoError(t, err)
					taken = append(taken, conn)
				}
			}
		},
		End: func(testing.TB) {
			for _, conn := range taken {
				conn.Release()
			}
		},
	})
}
