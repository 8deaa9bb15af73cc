package weirpostgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed migrations/*.sql
var files embed.FS

// A Migration is one step in making the schema, to be run once and in a transaction.
type Migration struct {
	Version int    // 1, 2, 3…
	Name    string // the file's, in the folder migrations
	SQL     string // several statements, for the schema that was asked for
}

// Migrations returns all steps, in order, for those who run them with a tool of their own. schema "" is weir, and
// then they are the files in the folder migrations as they are.
func Migrations(schema string) ([]Migration, error) {
	schema, err := schemaName(schema)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		name = strings.TrimPrefix(name, "migrations/")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("weirpostgres: migration %s has no number: %w", name, err)
		}
		all = append(all, Migration{Version: version, Name: name, SQL: inSchema(string(text), schema)})
	}
	return all, nil
}

// A Beginner begins transactions: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Migrate creates the schema, "": weir, or brings it up to date, in one transaction. Where there is nothing to do
// it changes nothing and needs no right to. Many instances may call it at the same time. A schema that is newer
// than this program is left as it is, and works.
func Migrate(ctx context.Context, db Beginner, schema string) error {
	schema, err := schemaName(schema)
	if err != nil {
		return err
	}
	all, err := Migrations(schema)
	if err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("weirpostgres: migrate: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if err := migrate(ctx, tx, schema, all); err != nil {
		return fmt.Errorf("weirpostgres: migrate schema %q: %w", schema, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("weirpostgres: migrate schema %q: %w", schema, err)
	}
	return nil
}

func migrate(ctx context.Context, tx pgx.Tx, schema string, all []Migration) error {
	// The lock is of the database, and ends with the transaction.
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended('weir migrate', 0))`); err != nil {
		return err
	}
	var there bool
	table := inSchema(`"weir".migrations`, schema)
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

// DefaultSchema is the schema where none is named.
const DefaultSchema = "weir"

// A schema's name stands in quotes in texts of all kinds, and in the name of a channel, which has at most 63 bytes.
var validSchema = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,47}$`)

func schemaName(schema string) (string, error) {
	if schema == "" {
		return DefaultSchema, nil
	}
	if !validSchema.MatchString(schema) {
		return "", fmt.Errorf("weirpostgres: the schema's name is %q, must be letters, digits and _, not begin with a digit, and have at most 48 of them", schema)
	}
	return schema, nil
}

// inSchema puts the schema's name in place: the texts have "weir", with the quotes, wherever it is meant.
func inSchema(text, schema string) string {
	return strings.ReplaceAll(text, `"`+DefaultSchema+`"`, `"`+schema+`"`)
}
