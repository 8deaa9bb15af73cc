package weirpostgres

import (
	"cmp"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store"
)

// Options configure a [store.Store] on PostgreSQL. The zero value has the defaults. [BackendOptions] describes the
// fields that are not of store.Options.
type Options struct {
	Schema             string `json:"schema,omitempty" yaml:"schema,omitempty"`
	AsynchronousCommit bool   `json:"asynchronous_commit,omitempty" yaml:"asynchronous_commit,omitempty"`
	NoSweep            bool   `json:"no_sweep,omitempty" yaml:"no_sweep,omitempty"`

	store.Options `yaml:",inline"`
}

// New returns a Store whose limiters are in PostgreSQL. If options is nil, the defaults apply. Close the pool after the Store,
// which does not close it. New sends nothing, so the server can be away. [Migrate] must have made the tables when the
// first limiter is used.
//
// All instances with the same database, Schema and limiter's name share the limiter.
func New(pool *pgxpool.Pool, options *Options) (*store.Store, error) {
	o := *cmp.Or(options, new(Options))
	b, err := NewBackend(pool, &BackendOptions{Schema: o.Schema, AsynchronousCommit: o.AsynchronousCommit, NoSweep: o.NoSweep})
	if err != nil {
		return nil, err
	}
	return store.New(b, &o.Options)
}
