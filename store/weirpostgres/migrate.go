package weirpostgres

import (
	"context"
	"embed"

	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

//go:embed migrations/*.sql
var files embed.FS

var migrations = pgmigrate.Set{Package: "weirpostgres", Files: files, Table: "migrations"}

// A Migration is one step in making the schema. Run it once, in a transaction.
type Migration = pgmigrate.Migration

// A Beginner begins transactions: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Beginner = pgmigrate.Beginner

// DefaultSchema is the schema if none is named.
const DefaultSchema = pgmigrate.DefaultSchema

// Migrations returns all steps in order, for programs that run them with their own tool. With an empty schema they are
// for DefaultSchema, and equal to the files in the folder migrations.
func Migrations(schema string) ([]Migration, error) { return migrations.Migrations(schema) }

// Migrate creates the schema or brings it up to date, in one transaction. An empty schema stands for DefaultSchema. If
// the schema is up to date, Migrate changes nothing and needs no privilege to create tables. Many instances can call it
// at the same time. A schema that is newer than this program works, and stays as it is.
func Migrate(ctx context.Context, db Beginner, schema string) error {
	return migrations.Migrate(ctx, db, schema)
}
