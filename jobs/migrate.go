package jobs

import (
	"context"
	"embed"

	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

//go:embed migrations/*.sql
var files embed.FS

var migrations = pgmigrate.Set{Package: "jobs", Files: files, Table: "jobs_migrations"}

// A Migration is one step in making the tables, to be run once and in a transaction.
type Migration = pgmigrate.Migration

// A Beginner begins transactions: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Beginner = pgmigrate.Beginner

// Migrations returns all steps in order, for programs that run migrations with a tool of their own. If schema is empty,
// it is weir.
func Migrations(schema string) ([]Migration, error) { return migrations.Migrations(schema) }

// Migrate creates the tables in the schema, or brings them up to date, in one transaction. If schema is empty, it is
// weir, where the tables of package weirpostgres may be as well. If there is nothing to do, Migrate changes nothing and
// needs no right to. Many instances may call it at the same time.
func Migrate(ctx context.Context, db Beginner, schema string) error {
	return migrations.Migrate(ctx, db, schema)
}
