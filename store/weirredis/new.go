package weirredis

import (
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// Options configure a [store.Store] on Redis. The zero Options are good.
type Options struct {
	// Prefix is what all keys and the channel begin with; "" is "weir".
	Prefix string `json:"prefix,omitempty" yaml:"prefix,omitempty"`

	store.Options `yaml:",inline"`
}

// New returns a Store whose limiters are in Redis. The client stays the caller's, who closes it after the
// Store. Nothing is sent to the server yet, and the server need not be there.
//
// The client should have ContextTimeoutEnabled, so that calls end when their time is over.
//
// All instances that have the same server, Prefix and limiter's name share the limiter. A *redis.Ring is
// refused.
func New(client redis.UniversalClient, options *Options) (*store.Store, error) {
	var o Options
	if options != nil {
		o = *options
	}
	b, err := NewBackend(client, &BackendOptions{Prefix: o.Prefix})
	if err != nil {
		return nil, err
	}
	return store.New(b, &o.Options)
}
