package weirpostgres

import (
	"cmp"
	"context"
	"hash/maphash"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/store/backend"
)

// BackendOptions configure how a [Backend] uses its database. The zero value has the defaults.
type BackendOptions struct {
	// Schema is the schema of the tables. It has letters, digits and _, and does not begin with a digit. The default is
	// weir.
	Schema string `json:"schema,omitempty" yaml:"schema,omitempty"`
	// AsynchronousCommit, if true, makes decisions several times faster: they do not wait for the server's disk. If the
	// server crashes, permits of the last moments (three times wal_writer_delay, by default 0.6 s) can be granted
	// again. Acquiring and renewing leases still waits for the disk. Releasing a lease does not: if the crash undoes the
	// release, the lease ends with its TTL. If false, the session's synchronous_commit applies.
	AsynchronousCommit bool `json:"asynchronous_commit,omitempty" yaml:"asynchronous_commit,omitempty"`
	// NoSweep, if true, leaves deleting unused rows to other instances. By default, while decisions are made, this
	// instance sweeps 1 MB of each table every ten seconds, or earlier after 64,000 decisions. If sweeps find many unused
	// rows, it sweeps up to 64 times as often.
	NoSweep bool `json:"no_sweep,omitempty" yaml:"no_sweep,omitempty"`
}

// A Backend keeps the state of limiters in PostgreSQL. It is safe for use by many goroutines at once. The zero value is
// not usable; make a Backend with [NewBackend].
type Backend struct {
	*database
	rejections recentRejections
	locks      expiredWait
	sweeper    sweeper
}

var _ backend.Backend = (*Backend)(nil)

// NewBackend returns a Backend that uses the pool, which it does not close. If options is nil, the defaults apply. It sends
// nothing: the first call shows whether the schema exists. Close the pool after the Backend.
func NewBackend(pool *pgxpool.Pool, options *BackendOptions) (*Backend, error) {
	o := *cmp.Or(options, new(BackendOptions))
	var p validate.Problems
	if pool == nil {
		p.Add("pool", nil, "must not be nil")
	}
	schema, err := migrations.SchemaName(o.Schema)
	p.Include("", err)
	if err := p.Err("weirpostgres"); err != nil {
		return nil, err
	}
	b := &Backend{database: newDatabase(pool, schema, o.AsynchronousCommit)}
	b.rejections.seed = maphash.MakeSeed()
	b.sweeper.init(b.database, !o.NoSweep)
	return b, nil
}

// Connections returns how many connections the pool can have.
func (b *Backend) Connections() int { return int(b.pool.Stat().MaxConns()) }

// Close ends what the Backend does in the background, and waits for it. It does not close the pool.
func (b *Backend) Close() error {
	b.sweeper.sweeps.Close(context.Canceled)
	return nil
}
