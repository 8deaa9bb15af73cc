package jobs

import (
	"context"
	"embed"
	"errors"
	"reflect"
	"strings"
	texttemplate "text/template"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A querier is a *pgxpool.Pool, a *pgxpool.Conn or a pgx.Tx.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// query runs a statement and passes its rows to f, which comes from eachRow or appendRows.
func query(ctx context.Context, db querier, f func(pgx.Rows) error, sql string, args ...any) error {
	rows, _ := db.Query(ctx, sql, args...) // the rows return the error, too
	return f(rows)
}

// eachRow returns a function that scans each row into to, and then calls f.
func eachRow(f func(), to ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, to, func() error { f(); return nil })
		return err
	}
}

// appendRows returns a function that appends each row to *to. The columns are the fields of T, in order.
func appendRows[T any](to *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*to, err = pgx.AppendRows(*to, rows, pgx.RowToStructByPos[T])
		return err
	}
}

// columns returns the fields of rows as one array each, in order, for unnest.
func columns[T any](rows []T) (arrays []any) {
	all := reflect.ValueOf(rows)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if field.Anonymous { // its fields are among them
			continue
		}
		array := reflect.MakeSlice(reflect.SliceOf(field.Type), len(rows), len(rows))
		for i := range rows {
			array.Index(i).Set(all.Index(i).FieldByIndex(field.Index))
		}
		arrays = append(arrays, array.Interface())
	}
	return arrays
}

// maxTries is how often a transaction is tried that is the victim of deadlocks.
const maxTries = 5

// inTransaction runs f in a transaction whose statements see what others had written before a lock was granted, whatever the
// default of the pool or the database is. If it is the victim of a deadlock, f is called again.
func inTransaction(ctx context.Context, pool *pgxpool.Pool, f func(pgx.Tx) error) (err error) {
	for range maxTries {
		err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, f)
		if !isDeadlock(err) {
			break
		}
	}
	return err
}

// isDeadlock reports whether a transaction has failed because of others that ran at the same time.
func isDeadlock(err error) bool { return hasCode(err, "40P01") || hasCode(err, "40001") }

func hasCode(err error, code string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == code
}

//go:embed statements/*.sql
var statementFiles embed.FS

var statementTemplates = texttemplate.Must(texttemplate.ParseFS(statementFiles, "statements/*.sql"))

// statements are the texts of all SQL statements. Each field is the template of its name in the folder statements.
type statements struct {
	// database.resolve
	Mutexes, Keys, IDs string
	// database.load
	Settings, Lock, Locked, Released, OtherKeys, Dynamic, Clock, Overdue, OwnHolders, Holders, Running, WaitersOfJobs, Waiters, Fence string
	// database.save
	SaveKeys, RemoveHolders, SaveHolders, RemoveWaiters, SaveWaiters string
	// database.bringBack
	BringBack, FinishedWaiters string
	// maintenance
	BringBackLate, BringBackOutdated, BringForward, Stalled, RenewLeases, RemoveFinishedWaiters, RemoveDeadHolders, LockExpiredKeys, RemoveExpiredKeys string
	// New, and what sets and removes limiters
	CheckTables, Version, StoredOptions, SetLimiter, ExtendExpiry, Unknown, LockLimiter, LockKeys, UsedBy, Remove, ReleaseOwner string
	// Inspect and the lists
	ListLimiters, ListKeys, OneKey, AllKeys, AllWaiters, ListHolders, CountOwners, ListWaiters string
}

// newStatements returns the statements for given schemas of weir and River.
func newStatements(schema, riverSchema string) *statements {
	table := func(schema, name string) string {
		if schema == "" {
			return name
		}
		return `"` + schema + `".` + name
	}
	tables := map[string]string{
		"Limiters": table(schema, "jobs_limiters"), "Keys": table(schema, "jobs_keys"), "Holders": table(schema, "jobs_holders"),
		"Waiters": table(schema, "jobs_waiters"), "Fences": table(schema, "jobs_fences"), "Migrations": table(schema, "jobs_migrations"),
		"River": table(riverSchema, "river_job"),
	}
	s := new(statements)
	for field, text := range reflect.ValueOf(s).Elem().Fields() {
		var b strings.Builder
		if err := statementTemplates.ExecuteTemplate(&b, field.Name, tables); err != nil {
			panic(err) // a field without a template: no program gets that far
		}
		text.SetString(b.String())
	}
	return s
}
