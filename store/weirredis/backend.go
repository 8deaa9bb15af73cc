package weirredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/store/backend"
)

// BackendOptions configure a [Backend]. The zero value has the defaults.
type BackendOptions struct {
	// Prefix is the beginning of all keys and of the channel. Limiters with the same prefix and name are the same. It
	// must have no braces. The default is "weir".
	Prefix string `yaml:"prefix" json:"prefix"`
}

// A Backend keeps the state of limiters in Redis. It is a [backend.Backend]; most programs call [New] instead, which
// makes a Store on one.
//
// Its methods are safe for use by many goroutines at once. They return the errors of the client and the server,
// wrapped. The zero value is not usable; make a Backend with [NewBackend].
//
// go-redis does not end a call when its context is canceled: a call waits for its answer until the client's ReadTimeout
// or, with ContextTimeoutEnabled, until the context's deadline. Set ContextTimeoutEnabled, or a short ReadTimeout.
//
// By default go-redis dials up to five times, 100 ms apart, before a call fails. So a server that refuses connections is
// noticed after 0.4 s or at the end of the call's context. Set DialerRetries to 1, which is one attempt: a Store itself
// decides when to try a server again.
type Backend struct {
	*servers
	scripts *scripts
	names   names
	silence time.Duration // without a message, after which Listen sends a ping

	mu       sync.RWMutex // guards limiters
	limiters map[string]*limiterPlaces
}

var (
	_ backend.Backend = (*Backend)(nil)
	_ backend.Sharded = (*Backend)(nil)
)

// NewBackend returns a Backend on a client, which it does not close. If options is nil, the defaults apply. Nothing is sent to
// the server yet. A *redis.Ring is refused: its servers do not receive each other's notices, and it moves keys when one
// of them is away.
func NewBackend(client redis.UniversalClient, options *BackendOptions) (*Backend, error) {
	return newBackend(client, *cmp.Or(options, new(BackendOptions)), serverClock)
}

func newBackend(client redis.UniversalClient, o BackendOptions, clock clock) (*Backend, error) {
	var p validate.Problems
	if _, ring := client.(*redis.Ring); ring {
		p.Add("client", nil, "must not be a Ring: use a Cluster")
	} else if isnil.Value(client) {
		p.Add("client", nil, "must not be nil")
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		p.Add("Prefix", o.Prefix, "must have no braces")
	}
	if err := p.Err("weirredis"); err != nil {
		return nil, err
	}
	o.Prefix = cmp.Or(o.Prefix, "weir")
	s := &servers{client: client}
	s.cluster, _ = client.(*redis.ClusterClient)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return &Backend{
		servers: s, scripts: newScripts(clock), names: names{prefix: o.Prefix}, silence: 10 * time.Second, limiters: map[string]*limiterPlaces{},
	}, nil
}

// Connections returns the client's PoolSize, 32 if the type of the client is not known.
func (b *Backend) Connections() int {
	switch c := b.client.(type) {
	case *redis.Client:
		return c.Options().PoolSize
	case *redis.ClusterClient:
		return c.Options().PoolSize
	}
	return 32
}

// ShardOf returns the address of the Cluster's server that has a key, as far as the client knows. The client follows a slot that
// moves, or whose server was replaced, as soon as a server reports it. Without a Cluster there is one shard, "".
func (b *Backend) ShardOf(name, key string) string {
	if b.cluster == nil {
		return ""
	}
	return b.serverAt(b.places(name).of(key))
}

// Close ends what the Backend does in the background. It does not close the client. A call that is under way ends with its answer,
// or with the client's ReadTimeout, for which Close does not wait.
func (b *Backend) Close() error {
	b.cancel()
	return nil
}

// maxPlaces is the largest number of limiters whose places are kept.
const maxPlaces = 4096

func (b *Backend) places(limiter string) *limiterPlaces {
	b.mu.RLock()
	l := b.limiters[limiter]
	b.mu.RUnlock()
	if l != nil {
		return l
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.limiters) >= maxPlaces {
		clear(b.limiters)
	}
	l = &limiterPlaces{names: b.names, name: limiter}
	b.limiters[limiter] = l
	return l
}

// wrap adds the operation to err. If ctx has ended, it adds the context's error, too: go-redis can report a closed
// connection or a timeout instead.
func wrap(ctx context.Context, what string, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	return fmt.Errorf("weirredis: %s: %w", what, err)
}
