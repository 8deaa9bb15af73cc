package weirredis

import (
	"cmp"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// Options configure a [store.Store] on Redis. The zero value has the defaults.
type Options struct {
	// Prefix is the beginning of all keys and of the channel. The default is "weir".
	Prefix string `json:"prefix,omitempty" yaml:"prefix,omitempty"`

	store.Options `yaml:",inline"`
}

// New returns a Store whose limiters are in Redis. If options is nil, the defaults apply. Close the client after the Store,
// which does not close it. New sends nothing, so the server can be away.
//
// The client should have ContextTimeoutEnabled, so that calls end in time, and a DialerRetries of 1, so that a server that
// refuses connections is noticed at once; see [Backend]. A *redis.Ring is refused.
//
// All instances with the same server, Prefix and limiter's name share the limiter.
func New(client redis.UniversalClient, options *Options) (*store.Store, error) {
	o := *cmp.Or(options, new(Options))
	b, err := NewBackend(client, &BackendOptions{Prefix: o.Prefix})
	if err != nil {
		return nil, err
	}
	return store.New(b, &o.Options)
}
