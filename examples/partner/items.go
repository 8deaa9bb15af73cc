package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// items is the service behind the limiter: it stores items and returns the latest items of a user.
type items struct {
	pool   *pgxpool.Pool
	schema string
}

// An answer is the body of both routes. Now is PostgreSQL's clock when the statement ran, so the load measures time by
// the clock that the limiters use.
type answer struct {
	User  string    `json:"user"`
	Items []string  `json:"items"`
	Now   time.Time `json:"now"`
}

// The bounds of what clients send.
const (
	maxBody = 4 << 10
	maxName = 100 // of a user or an item, in bytes
)

// setUp creates the schema and the tables of the items and of the variant. Every instance may call it.
func setUp(ctx context.Context, pool *pgxpool.Pool, schema string, v variant) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		statements := []string{
			// "if not exists" alone fails if two sessions create the same at the same time.
			"select pg_advisory_xact_lock(hashtextextended('weir examples/partner', 0))",
			"create schema if not exists SCHEMA",
			"create table if not exists SCHEMA.items (id bigserial primary key, who text not null, name text not null)",
			"create index if not exists items_who on SCHEMA.items (who, id)",
		}
		for _, sql := range append(statements, v.setUp...) {
			if _, err := tx.Exec(ctx, inSchema(sql, schema)); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// create is POST /items/create.
func (i *items) create(w http.ResponseWriter, r *http.Request) {
	var item struct{ User, Name string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&item); err != nil {
		http.Error(w, `the body must be {"user": "…", "name": "…"}`, http.StatusBadRequest)
		return
	}
	if !isName(item.User) || !isName(item.Name) {
		http.Error(w, fmt.Sprintf("user and name must be UTF-8 of 1 to %d bytes, without zeros", maxName), http.StatusBadRequest)
		return
	}
	a := answer{User: item.User, Items: []string{item.Name}}
	err := i.pool.QueryRow(r.Context(),
		inSchema("insert into SCHEMA.items (who, name) values ($1, $2) returning clock_timestamp()", i.schema),
		item.User, item.Name).Scan(&a.Now)
	respond(w, http.StatusCreated, a, err)
}

// get is GET /items/{user}.
func (i *items) get(w http.ResponseWriter, r *http.Request) {
	a := answer{User: r.PathValue("user"), Items: []string{}}
	err := i.pool.QueryRow(r.Context(), inSchema(`
		select coalesce(array_agg(name), '{}'), clock_timestamp()
		from (select name from SCHEMA.items where who = $1 order by id desc limit 10) latest`, i.schema),
		a.User).Scan(&a.Items, &a.Now)
	respond(w, http.StatusOK, a, err)
}

// isName reports whether PostgreSQL can store s as a text, and s is short enough.
func isName(s string) bool {
	return 0 < len(s) && len(s) <= maxName && utf8.ValidString(s) && !strings.Contains(s, "\x00")
}

func respond(w http.ResponseWriter, status int, a answer, err error) {
	if err != nil {
		http.Error(w, "the database does not answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // fails only if the client has gone
}
