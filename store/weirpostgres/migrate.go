package weirpostgres

import (
	"context"
	"embed"

	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

//go:embed migrations/*.sql
var files embed.FS

var migrations = pgmigrate.Set{Package: "weirpostgres", Files: files, Table: "migrations"}

// A Migration is one step in making the schema, to be run once and in a transaction.
type Migration = pgmigrate.Migration

// A Beginner begins transactions: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Beginner = pgmigrate.Beginner

// DefaultSchema is the schema where none is named.
const DefaultSchema = pgmigrate.DefaultSchema

// Migrations returns all steps, in order, for those who run them with a tool of their own. schema "" is weir, and
// then they are the files in the folder migrations as they are.
func Migrations(schema string) ([]Migration, error) { return migrations.Migrations(schema) }

// Migrate creates the schema, "": weir, or brings it up to date, in one transaction. Where there is nothing to do
// it changes nothing and needs no right to. Many instances may call it at the same time. A schema that is newer
// than this program is left as it is, and works.
func Migrate(ctx context.Context, db Beginner, schema string) error {
	return migrations.Migrate(ctx, db, schema)
}

func schemaName(schema string) (string, error) { return migrations.SchemaName(schema) }

func inSchema(text, schema string) string { return pgmigrate.InSchema(text, schema) }
