package weirredis

import (
	"context"
	"crypto/rand"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

var _ backend.Sharded = (*Backend)(nil)

// ended is a context that has ended, so that MasterForKey sends nothing.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// ShardOf returns the address of the Cluster's server that has a key, as far as the client knows. The client follows a slot that
// moves, or whose server was replaced, as soon as a server reports it. Without a Cluster there is one shard, "".
func (b *Backend) ShardOf(name, key string) string {
	if b.cluster == nil {
		return ""
	}
	return b.serverAt(b.places(name).of(key))
}

// serverAt returns the address of the Cluster's server that has a place. It is "" without a Cluster, and if it is not known.
func (s *servers) serverAt(p *place) string {
	if !s.slotsKnown.Load() {
		return ""
	}
	server, err := s.cluster.MasterForKey(ended, p.start)
	if err != nil {
		return ""
	}
	return server.Options().Addr
}

// answered notes that a server of the Cluster has answered: from now on the client knows which server has which slot,
// and MasterForKey need not ask.
func (s *servers) answered() {
	if s.cluster != nil && !s.slotsKnown.Load() {
		s.slotsKnown.Store(true)
	}
}

// placeOnEach returns a place of the limiter on each server: of those on a server, the one that copyTo writes last.
func (s *servers) placeOnEach(l *limiterPlaces) (all []*place) {
	if s.cluster != nil && !s.slotsKnown.Load() {
		return nil
	}
	seen := map[string]bool{}
	for i := range numPlaces {
		p := l.at(numPlaces - 1 - i)
		if at := s.serverAt(p); !seen[at] {
			seen[at] = true
			all = append(all, p)
		}
	}
	return all
}

// subscribe listens at a random server of a Cluster, because each server forwards what is published at another. If all
// instances listened at the server that has the channel's slot, all would miss notices while that server is away.
func (s *servers) subscribe(ctx context.Context, channel string) *redis.PubSub {
	if s.slotsKnown.Load() {
		if server, err := s.cluster.MasterForKey(ended, rand.Text()); err == nil {
			return server.Subscribe(ctx, channel)
		}
	}
	return s.client.Subscribe(ctx, channel)
}
