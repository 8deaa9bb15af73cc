package weirredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

// BackendOptions configure a [Backend]. The zero value is good.
type BackendOptions struct {
	// Prefix is what all keys and the channel begin with. Limiters of the same prefix and name are
	// the same. It has no braces. "" is "weir".
	Prefix string `yaml:"prefix" json:"prefix"`
}

// A Backend keeps the state of limiters in Redis. It is a [backend.Backend]; most callers hand
// it to store.New and are done with it.
//
// Its methods are safe for use by many goroutines at once. What they return are the errors of the
// client and the server, wrapped. The zero Backend is not usable; make one with [NewBackend].
//
// go-redis does not end a call when its context does: while it waits for an answer, only the client's
// ReadTimeout counts, and with the option ContextTimeoutEnabled the context's deadline. Set
// that one, or a short ReadTimeout.
type Backend struct {
	client  redis.UniversalClient
	scripts *scripts
	names   names
	silence time.Duration // see Listen

	cluster *redis.ClusterClient // nil: it is no Cluster
	mapped  atomic.Bool          // the client knows which server has which slot

	plans    boundedMap[*backend.Definition, *plan]
	limiters boundedMap[string, *limiterPlaces]

	greeting greeting
}

var _ backend.Backend = (*Backend)(nil)

// NewBackend returns a Backend on a client, which stays the caller's: it is not closed. Nothing is sent to the
// server yet. A *redis.Ring is refused: its servers do not hear of each other's notices, and it
// moves keys when one of them is away.
func NewBackend(client redis.UniversalClient, options *BackendOptions) (*Backend, error) {
	var o BackendOptions
	if options != nil {
		o = *options
	}
	return newBackend(client, o, serverClock)
}

func newBackend(client redis.UniversalClient, o BackendOptions, clock clock) (*Backend, error) {
	var problems []error
	switch c := client.(type) {
	case nil:
		problems = append(problems, errors.New("client: missing"))
	case *redis.Client:
		if c == nil {
			problems = append(problems, errors.New("client: missing"))
		}
	case *redis.ClusterClient:
		if c == nil {
			problems = append(problems, errors.New("client: missing"))
		}
	case *redis.Ring:
		problems = append(problems, errors.New("client: a Ring cannot be used: use a Cluster"))
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		problems = append(problems, fmt.Errorf("prefix: %q has braces", o.Prefix))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("weirredis: %w", errors.Join(problems...))
	}
	if o.Prefix == "" {
		o.Prefix = "weir"
	}
	b := &Backend{client: client, scripts: newScripts(clock), names: names{prefix: o.Prefix}, silence: 10 * time.Second}
	b.cluster, _ = client.(*redis.ClusterClient)
	b.greeting.init()
	return b, nil
}

// Interruptible tells whether the client heeds contexts: see its option ContextTimeoutEnabled.
func (b *Backend) Interruptible() bool {
	switch c := b.client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// Close ends what the Backend does in the background. The client is the caller's, and stays open.
func (b *Backend) Close() error {
	b.greeting.cancel()
	return nil
}

// wrap says what was asked when err happened. A context that has ended is told by its own error, too: go-redis may
// report a closed connection or a timeout instead.
func wrap(ctx context.Context, what string, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	return fmt.Errorf("weirredis: %s: %w", what, err)
}
