package jobs

import (
	"context"
	"embed"

	"github.com/weir-go/weir/store/weirpostgres/pgmigrate"
)

//go:embed migrations/*.sql
var files embed.FS

var migrations = pgmigrate.Set{Package: "jobs", Files: files, Table: "jobs_migrations"}

// Migrations returns all steps in order, for programs that run migrations with a tool of their own. If schema is empty,
// it is weir.
func Migrations(schema string) ([]pgmigrate.Migration, error) { return migrations.Migrations(schema) }

// Migrate creates the tables in the schema, or brings them up to date, in one transaction. If schema is empty, it is
// weir, where the tables of package weirpostgres may be as well. If there is nothing to do, Migrate changes nothing and
// needs no right to. Many instances may call it at the same time.
func Migrate(ctx context.Context, db pgmigrate.Beginner, schema string) error {
	return migrations.Migrate(ctx, db, schema)
}
