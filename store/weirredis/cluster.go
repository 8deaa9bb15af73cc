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
	if b.cluster == nil || !b.slotsKnown.Load() {
		return ""
	}
	return b.serverAt(b.places(name).of(key))
}

func (b *Backend) serverAt(p *place) string {
	server, err := b.cluster.MasterForKey(ended, p.start)
	if err != nil {
		return ""
	}
	return server.Options().Addr
}

// answered notes that a server of the Cluster has answered: from now on the client knows which server has which slot,
// and MasterForKey need not ask.
func (b *Backend) answered() {
	if b.cluster != nil && !b.slotsKnown.Load() {
		b.slotsKnown.Store(true)
	}
}

// placesElsewhere returns a place of the limiter on each server of the Cluster except that of the definition, three at
// most.
func (b *Backend) placesElsewhere(l *limiterPlaces) []*place {
	if b.cluster == nil || !b.slotsKnown.Load() {
		return nil
	}
	seen := map[string]bool{"": true, b.serverAt(l.of("")): true}
	var some []*place
	for i := range numPlaces {
		p := l.at(i)
		if at := b.serverAt(p); !seen[at] && len(some) < 3 {
			seen[at] = true
			some = append(some, p)
		}
	}
	return some
}

// subscribe listens at a random server of a Cluster, because each server forwards what is published at another. If all
// instances listened at the server that has the channel's slot, all would miss notices while that server is away.
func (b *Backend) subscribe(ctx context.Context) *redis.PubSub {
	if b.cluster != nil && b.slotsKnown.Load() {
		if server, err := b.cluster.MasterForKey(ended, rand.Text()); err == nil {
			return server.Subscribe(ctx, b.names.channel())
		}
	}
	return b.client.Subscribe(ctx, b.names.channel())
}
