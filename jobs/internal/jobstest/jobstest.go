// Package jobstest gives tests of jobs a database with River's tables and weir's.
package jobstest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

var schemas atomic.Int64

// A DB has a schema for River's tables and one for weir's, of the test's own. At its end they are dropped.
type DB struct {
	T             testing.TB
	Pool          *pgxpool.Pool
	Schema, River string
}

// New returns a DB on the server of that URL, with the tables of River and of migrate, which is jobs.Migrate.
func New(t testing.TB, url string, migrate func(ctx context.Context, db pgmigrate.Beginner, schema string) error) *DB {
	t.Helper()
	n := fmt.Sprint(os.Getpid(), "_", schemas.Add(1))
	db := &DB{T: t, Pool: Pool(t, url, 20), Schema: "Jobs_" + n, River: "River_" + n}
	t.Cleanup(func() {
		db.Exec(fmt.Sprintf(`drop schema if exists "%s" cascade; drop schema if exists "%s" cascade`, db.Schema, db.River))
	})
	db.Exec(fmt.Sprintf(`create schema "%s"`, db.River))
	migrator, err := rivermigrate.New(riverpgxv5.New(db.Pool), &rivermigrate.Config{Schema: db.River, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	require.NoError(t, migrate(t.Context(), db.Pool, db.Schema))
	return db
}

// Pool returns a pool of so many connections, which is closed at the end of the test.
func Pool(t testing.TB, url string, conns int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// SQL puts the schemas in place of "weir" and RIVER, and a table of the test's own in place of NOTES.
func (db *DB) SQL(text string) string {
	return strings.NewReplacer(`"weir"`, `"`+db.Schema+`"`, "RIVER", `"`+db.River+`".river_job`, "NOTES", `"`+db.Schema+`".notes`).Replace(text)
}

// Exec runs a statement.
func (db *DB) Exec(sql string, args ...any) {
	db.T.Helper()
	_, err := db.Pool.Exec(context.Background(), db.SQL(sql), args...)
	require.NoError(db.T, err)
}

// Int returns the number that a statement returns.
func (db *DB) Int(sql string, args ...any) (n int64) {
	db.T.Helper()
	require.NoError(db.T, db.Pool.QueryRow(context.Background(), db.SQL(sql), args...).Scan(&n))
	return n
}

// Job inserts a job that is running, as River would have it.
func (db *DB) Job(kind string, args any) *rivertype.JobRow {
	db.T.Helper()
	text, err := json.Marshal(args)
	require.NoError(db.T, err)
	job := &rivertype.JobRow{Kind: kind, EncodedArgs: text, Attempt: 1, Metadata: []byte(`{}`), AttemptedAt: new(time.Time)}
	require.NoError(db.T, db.Pool.QueryRow(context.Background(), db.SQL(`insert into RIVER (kind, args, state, attempt, attempted_at, max_attempts)
		values ($1, $2, 'running', 1, clock_timestamp(), 25) returning id, attempted_at`), kind, string(text)).Scan(&job.ID, job.AttemptedAt))
	return job
}
