// Package pgmigrate makes the tables of weir's packages that keep their state in PostgreSQL, and brings them up to
// date. Programs call the function Migrate of the package whose tables they need.
package pgmigrate

import (
	"context"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-go/weir"
)

// A Set is the migrations of one package. Sets can share a schema: each has its own table with its version.
type Set struct {
	Package string // the beginning of error texts
	Files   fs.FS  // has a folder migrations with files NNNN_name.sql
	Table   string // where each migration inserts its version
}

// A Migration is one step in making the schema. Run it once, in a transaction.
type Migration struct {
	Version int    // 1, 2, 3…
	Name    string // the file's, in the folder migrations
	SQL     string // several statements, for the requested schema
}

// A Beginner begins transactions: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Migrations returns all steps in order. If schema is empty, it is [DefaultSchema], and the steps are the files as they
// are.
func (s Set) Migrations(schema string) ([]Migration, error) {
	schema, err := s.SchemaName(schema)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(s.Files, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, name := range names {
		text, err := fs.ReadFile(s.Files, name)
		if err != nil {
			return nil, err
		}
		name = strings.TrimPrefix(name, "migrations/")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%s: migration %s has no number: %w", s.Package, name, err)
		}
		all = append(all, Migration{Version: version, Name: name, SQL: InSchema(string(text), schema)})
	}
	return all, nil
}

// Migrate creates the tables or brings them up to date, in one transaction. If they are up to date, Migrate changes
// nothing and needs no privilege to create tables. Many instances can call it at the same time. A schema that is newer
// than this program works, and stays as it is.
func (s Set) Migrate(ctx context.Context, db Beginner, schema string) error {
	schema, err := s.SchemaName(schema)
	if err != nil {
		return err
	}
	all, err := s.Migrations(schema)
	if err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return s.run(ctx, tx, schema, all) }); err != nil {
		return fmt.Errorf("%s: migrate schema %q: %w", s.Package, schema, err)
	}
	return nil
}

func (s Set) run(ctx context.Context, tx pgx.Tx, schema string, all []Migration) error {
	// The lock is of the database, for all sets, and ends with the transaction.
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('weir migrate', 0))`); err != nil {
		return err
	}
	var there bool
	table := InSchema(`"weir".`+s.Table, schema)
	if err := tx.QueryRow(ctx, `select to_regclass($1::text) is not null`, table).Scan(&there); err != nil {
		return err
	}
	version := 0
	if there {
		if err := tx.QueryRow(ctx, `select coalesce(max(version), 0) from `+table).Scan(&version); err != nil {
			return err
		}
	}
	for _, m := range all {
		if m.Version <= version {
			continue
		}
		if _, err := tx.Exec(ctx, m.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

// DefaultSchema is the schema if none is named.
const DefaultSchema = "weir"

// validSchema matches names that need no escaping inside quotes. They are also part of a channel's name, which has at
// most 63 bytes.
var validSchema = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,47}$`)

// SchemaName returns schema or, if that is empty, [DefaultSchema]. It returns a [weir.OptionsError] for a name that a
// schema cannot have.
func (s Set) SchemaName(schema string) (string, error) {
	if schema == "" {
		return DefaultSchema, nil
	}
	if !validSchema.MatchString(schema) {
		return "", &weir.OptionsError{Package: s.Package, Fields: []weir.FieldError{{
			Path: "Schema", Problem: "must be letters, digits and _, not begin with a digit, and have at most 48 of them", Value: schema,
		}}}
	}
	return schema, nil
}

// InSchema replaces the default schema by schema. It replaces every "weir" in quotes, and nothing else.
func InSchema(text, schema string) string {
	return strings.ReplaceAll(text, `"`+DefaultSchema+`"`, `"`+schema+`"`)
}
