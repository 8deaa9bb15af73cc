package weirpostgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

func TestSharedConformance(t *testing.T) {
	t.Parallel()
	url := postgres(t).URL
	pool := connect(t, url, nil)
	schema := freshSchema(t, pool)
	steerable(t, pool, schema)
	drill.Conformance(t, store.Options{NoListen: true}, func(t testing.TB) backend.Backend {
		// Each case makes its own connections, and a connection costs more than what a case asks.
		b := newSteered(t, url+"&synchronous_commit=off", schema, func(c *pgxpool.Config) { c.MaxConns = 2 })
		b.now = func() int64 { return time.Now().UnixMicro() }
		return b
	})
}

// bouncerPlace is one behind PgBouncer in transaction mode.
func bouncerPlace(t testing.TB) string {
	t.Helper()
	server := postgres(t)
	_, schema := newPlace(t, server)
	return testserver.NewPgBouncer(t, server).URL + "&default_query_exec_mode=exec " + schema
}

// Listen does not work through it, which the store finds out by itself.
func TestSharedPollingThroughPgBouncer(t *testing.T) {
	s := drillSubject()
	place := bouncerPlace(t)
	s.Place = func(testing.TB) string { return place }
	drill.ReleaseWakes(t, s, false)
	drill.ListenUnsupported(t, s)
}
