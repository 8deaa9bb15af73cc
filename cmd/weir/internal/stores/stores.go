// Package stores opens the stores that the limiters of a file name.
package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/weirpostgres"
	"github.com/weir-go/weir/store/weirredis"
	"github.com/weir-go/weir/telemetry"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// Stores has the stores of a file that limiters use. A store is opened when the first limiter that names it is built.
// Opening sends nothing, so a store that is away at the start keeps nothing from starting.
type Stores struct {
	telemetry *telemetry.Telemetry
	events    *dashboard.Events
	logger    *slog.Logger
	ctx       context.Context // ends migrations that are still tried
	cancel    context.CancelFunc
	running   sync.WaitGroup

	mu   sync.Mutex
	open map[string]*openStore
}

// An openStore is a store and what belongs to it.
type openStore struct {
	*store.Store
	closers []func() // the connections, after the store

	mu        sync.Mutex
	migration error // why the tables are not there yet
}

// New returns Stores without a store.
func New(t *telemetry.Telemetry, events *dashboard.Events, logger *slog.Logger) *Stores {
	redis.SetLogger(redisLog{logger}) // there is one for the whole program
	s := &Stores{telemetry: t, events: events, logger: logger, open: make(map[string]*openStore)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Get returns the store of that name. It is opened once: the file cannot change it while the program runs.
func (s *Stores) Get(name string, c fileconfig.Store) (*store.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.open[name]; o != nil {
		return o.Store, nil
	}
	log, show := s.telemetry.OnStoreEvent(name), s.events.OnStoreEvent(name)
	options := store.Options{CallTimeout: c.CallTimeout, OnEvent: func(e store.Event) {
		log(e)
		show(e)
	}}
	o, err := s.connect(name, c, options)
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", name, err)
	}
	stop := s.telemetry.ObserveStore(name, o.Store)
	o.closers = append([]func(){stop}, o.closers...)
	s.open[name] = o
	return o.Store, nil
}

func (s *Stores) connect(name string, c fileconfig.Store, options store.Options) (*openStore, error) {
	password := ""
	if c.PasswordFile != "" {
		content, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return nil, err
		}
		password = strings.TrimRight(string(content), "\r\n")
	}
	if c.Redis != "" {
		return connectRedis(c, password, options)
	}
	return s.connectPostgres(name, c, password, options)
}

// redisOptions returns how to connect to Redis.
func redisOptions(c fileconfig.Store, password string) (*redis.Options, error) {
	o, err := redis.ParseURL(c.Redis)
	if err != nil {
		return nil, err
	}
	o.Password = cmp.Or(password, o.Password)
	o.ContextTimeoutEnabled = true
	// A server that refuses connections is away at once. By default the client dials five times in half a second, while
	// requests wait; when to try again is for the store to say.
	o.DialerRetries = cmp.Or(o.DialerRetries, 1)
	return o, nil
}

// A redisLog is the log of the Redis client, whose lines are not those of the program. What they tell is in the events of
// the store, too, so they are logged at Debug, which is off.
type redisLog struct{ logger *slog.Logger }

// Printf implements the client's interface.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.logger.DebugContext(ctx, fmt.Sprintf(format, args...))
}

func connectRedis(c fileconfig.Store, password string, options store.Options) (*openStore, error) {
	o, err := redisOptions(c, password)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(o)
	made, err := weirredis.New(client, &weirredis.Options{Prefix: c.Prefix, Options: options})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &openStore{Store: made, closers: []func(){func() { _ = client.Close() }}}, nil
}

// maxConns is how many connections to PostgreSQL a store opens at most, as they are needed. With the 4 of pgx, a request can
// wait for the round trip of others.
const maxConns = 16

func (s *Stores) connectPostgres(name string, c fileconfig.Store, password string, options store.Options) (*openStore, error) {
	o, err := pgxpool.ParseConfig(c.Postgres)
	if err != nil {
		return nil, err // pgx leaves out the password
	}
	o.ConnConfig.Password = cmp.Or(password, o.ConnConfig.Password)
	if !strings.Contains(c.Postgres, "pool_max_conns") {
		o.MaxConns = max(o.MaxConns, maxConns)
	}
	pool, err := pgxpool.NewWithConfig(s.ctx, o)
	if err != nil {
		return nil, err
	}
	made, err := weirpostgres.New(pool, &weirpostgres.Options{Schema: c.Schema, Options: options})
	if err != nil {
		pool.Close()
		return nil, err
	}
	open := &openStore{Store: made, closers: []func(){pool.Close}}
	if c.Migrate {
		open.migration = errors.New("the tables are not made yet")
		s.running.Go(func() { s.migrate(name, open, pool, c.Schema) })
	}
	return open, nil
}

// migrateAgain is the time between two attempts to make the tables of a server that is away.
const migrateAgain = 2 * time.Second

// migrate makes the tables, or tries again until the server is there.
func (s *Stores) migrate(name string, o *openStore, pool *pgxpool.Pool, schema string) {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
		err := weirpostgres.Migrate(ctx, pool, schema)
		cancel()
		o.mu.Lock()
		first := o.migration
		o.migration = err
		o.mu.Unlock()
		if err == nil {
			s.logger.Info("the tables of the store are up to date", "store", name)
			return
		}
		if first == nil || first.Error() != err.Error() {
			s.logger.Warn("the tables of the store could not be made, which is tried again", "store", name, "error", err)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(migrateAgain):
		}
	}
}

// Probe asks all stores once, so that the first requests find a connection. It waits until each has answered, or has not
// within its call timeout. What is wrong then is in the log and in Status.
func (s *Stores) Probe(ctx context.Context) {
	var all sync.WaitGroup
	for name, o := range s.ByName() {
		all.Go(func() {
			if err := o.Probe(ctx); err != nil {
				s.logger.Warn("the store does not answer", "store", name, "error", err)
			}
		})
	}
	all.Wait()
}

// A Status is what /ready tells of a store.
type Status struct {
	Available bool      `json:"available"`
	Since     time.Time `json:"since,omitzero"` // since when it is not
	Error     string    `json:"error,omitempty"`
}

// Status returns the state of the stores by name, and whether all are available.
func (s *Stores) Status() (all map[string]Status, available bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, available = make(map[string]Status, len(s.open)), true
	for name, o := range s.open {
		h := o.Health()
		o.mu.Lock()
		err := cmp.Or(h.Err, o.migration)
		o.mu.Unlock()
		status := Status{Available: err == nil}
		if err != nil {
			status.Error, status.Since, available = err.Error(), h.Since, false
		}
		all[name] = status
	}
	return all, available
}

// ByName returns the stores, for the dashboard.
func (s *Stores) ByName() map[string]*store.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*store.Store, len(s.open))
	for name, o := range s.open {
		all[name] = o.Store
	}
	return all
}

// Close closes all stores. The registry, whose limiters use them, is closed before.
func (s *Stores) Close() {
	s.cancel()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.open)) {
		o := s.open[name]
		if err := o.Close(); err != nil {
			s.logger.Warn("the store could not be closed", "store", name, "error", err)
		}
		for _, f := range o.closers {
			f()
		}
	}
}
