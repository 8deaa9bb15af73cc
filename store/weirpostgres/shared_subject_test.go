package weirpostgres

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

// The drills start this test binary again as an instance of a service.
func init() { drill.Main(openPlace) }

// A place is a URL of pgxpool and a schema.
func openPlace(place string) (backend.Backend, func(), error) {
	url, schema, _ := strings.Cut(place, " ")
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = 6 // eight instances have to find room
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, nil, err
	}
	b, err := NewBackend(pool, &BackendOptions{Schema: schema})
	return b, func() { closeBoth(b, pool) }, err
}

// closeBoth closes the backend, too, for backends without a Store; a second time does nothing.
func closeBoth(b *Backend, pool *pgxpool.Pool) {
	if b != nil {
		_ = b.Close()
	}
	pool.Close()
}

var placeNumbers atomic.Int64

// newPlace makes a fresh schema, which goes with the server.
func newPlace(t testing.TB, server *testserver.Server) (place, schema string) {
	t.Helper()
	schema = fmt.Sprintf("Drill_%d_%d", os.Getpid(), placeNumbers.Add(1))
	pool := connect(t, server.URL, nil)
	require.NoError(t, Migrate(context.Background(), pool, schema))
	return server.URL + " " + schema, schema
}

func drillSubject() drill.Subject {
	return drill.Subject{
		Open: openPlace,
		Place: func(t testing.TB) string {
			place, _ := newPlace(t, postgres(t))
			return place
		},
		NoLeaks: func(t testing.TB) {
			there := goleak.IgnoreCurrent()
			restarted := goleak.IgnoreAnyFunction("github.com/weir-go/weir/tools/testserver.startProcess.func1")
			t.Cleanup(func() { goleak.VerifyNone(t, there, restarted) })
		},
	}
}
