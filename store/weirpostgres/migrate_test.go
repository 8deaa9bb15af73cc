package weirpostgres

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/internal/testserver"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

func TestMigrateTwice(t *testing.T) {
	b, pool := shared(t)
	before := catalog(t, pool, b.schema)
	require.NoError(t, Migrate(t.Context(), pool, b.schema))
	assert.Equal(t, before, catalog(t, pool, b.schema))
}

func TestMigrateConcurrentSafe(t *testing.T) {
	pool := connect(t, testserver.Postgres(t).URL, nil)
	schema := newSchemaName(t, pool)
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = Migrate(context.Background(), pool, schema) })
	}
	all.Wait()
	for _, err := range errs {
		assert.NoError(t, err)
	}
	versions := count(t, pool, pgmigrate.InSchema(`select count(*) from "weir".migrations`, schema))
	steps, err := Migrations(schema)
	require.NoError(t, err)
	assert.EqualValues(t, len(steps), versions)
}

// Each state of the schema that a program may find is brought up to date.
func TestMigrateFromAnyStep(t *testing.T) {
	whole, pool := shared(t)
	want := catalog(t, pool, whole.schema)
	steps, err := Migrations("")
	require.NoError(t, err)
	for n := range steps {
		schema := newSchemaName(t, pool)
		for _, step := range steps[:n] {
			exec(t, pool, pgmigrate.InSchema(step.SQL, schema), pgx.QueryExecModeSimpleProtocol)
		}
		require.NoError(t, Migrate(t.Context(), pool, schema))
		assert.Equal(t, want, catalog(t, pool, schema), "from step %d", n)
	}
}

// The files are what Migrate does, as they are.
func TestMigrationFiles(t *testing.T) {
	whole, pool := shared(t)
	steps, err := Migrations("")
	require.NoError(t, err)
	schema := newSchemaName(t, pool)
	for i, step := range steps {
		assert.Equal(t, i+1, step.Version)
		text, err := files.ReadFile("migrations/" + step.Name)
		require.NoError(t, err)
		assert.Equal(t, string(text), step.SQL)
		exec(t, pool, strings.ReplaceAll(string(text), `"weir"`, `"`+schema+`"`), pgx.QueryExecModeSimpleProtocol)
	}
	assert.Equal(t, catalog(t, pool, whole.schema), catalog(t, pool, schema))
}

// Who may use the schema and not create one finds that there is nothing to do.
func TestMigrateWithoutRights(t *testing.T) {
	b, pool := shared(t)
	role := strings.ToLower(b.schema) + "_user"
	exec(t, pool, "drop role if exists "+role)
	exec(t, pool, "create role "+role+" login")
	t.Cleanup(func() { exec(t, pool, "drop owned by "+role); exec(t, pool, "drop role "+role) })
	exec(t, pool, pgmigrate.InSchema(`grant usage on schema "weir" to `, b.schema)+role)
	exec(t, pool, pgmigrate.InSchema(`grant select, insert, update, delete on all tables in schema "weir" to `, b.schema)+role)
	theirs := connect(t, testserver.Postgres(t).URL, func(c *pgxpool.Config) { c.ConnConfig.User = role })
	require.NoError(t, Migrate(t.Context(), theirs, b.schema))
	user := newBackend(t, theirs, BackendOptions{Schema: b.schema})
	batch := take(bucket(t, user, "a", 5, 1, 1_000_000), "", 2)
	require.NoError(t, user.Decide(t.Context(), []*backend.Batch{batch}))
	require.NoError(t, user.Acquire(t.Context(), []*backend.LeaseRequest{{Definition: concurrency(t, user, "c", 1), ID: "a", Permits: 1, TTL: 1_000_000}}))
	_, _, err := user.sweepRange(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Error(t, Migrate(t.Context(), theirs, b.schema+"_other"))
}

func TestSchemaNames(t *testing.T) {
	pool := connect(t, testserver.Postgres(t).URL, nil)
	for _, name := range []string{`a"b`, "1a", "a b", "a'", strings.Repeat("a", 49), "é", "-", "a.b"} {
		_, err := NewBackend(pool, &BackendOptions{Schema: name})
		assert.ErrorContains(t, err, "Schema must be letters", name)
		assert.ErrorContains(t, Migrate(t.Context(), pool, name), "Schema must be letters", name)
	}
	_, err := NewBackend(nil, nil)
	assert.ErrorContains(t, err, "pool must not be nil")
}

// catalog is what a schema consists of, as text that does not name it.
func catalog(t *testing.T, pool *pgxpool.Pool, schema string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		select 'column ' || c.table_name || '.' || c.column_name || ' ' || c.data_type || c.is_nullable || coalesce(c.column_default, '') || c.ordinal_position
			from information_schema.columns c where c.table_schema = $1
		union all select 'index ' || indexdef from pg_indexes where schemaname = $1
		union all select 'options ' || relname || coalesce(reloptions::text, '') from pg_class where relnamespace = ('"' || $1 || '"')::regnamespace
		union all select 'function ' || pg_get_functiondef(oid) from pg_proc where pronamespace = ('"' || $1 || '"')::regnamespace
		order by 1`, schema)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(all), 20)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], schema, "SCHEMA")
	}
	return all
}
