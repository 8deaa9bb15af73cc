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

	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

func TestMigrateConcurrentSafe(t *testing.T) {
	pool := connect(t, postgres(t).URL, nil)
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

// Each state of the schema that a program may find is brought up to date. The files are what Migrate does, as they are.
func TestMigrateFromAnyStep(t *testing.T) {
	whole, pool := shared(t)
	want := catalog(t, pool, whole.schema)
	steps, err := Migrations("")
	require.NoError(t, err)
	for n := range len(steps) + 1 {
		schema := newSchemaName(t, pool)
		for i, step := range steps[:n] {
			assert.Equal(t, i+1, step.Version)
			text, err := files.ReadFile("migrations/" + step.Name)
			require.NoError(t, err)
			assert.Equal(t, string(text), step.SQL)
			exec(t, pool, pgmigrate.InSchema(step.SQL, schema), pgx.QueryExecModeSimpleProtocol)
		}
		require.NoError(t, Migrate(t.Context(), pool, schema))
		assert.Equal(t, want, catalog(t, pool, schema), "from step %d", n)
	}
}

func TestSchemaNames(t *testing.T) {
	pool := connect(t, postgres(t).URL, nil)
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
