package weirredis

import (
	"context"
	"crypto/rand"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

var _ backend.Sharded = (*Backend)(nil)

// ended is a context that has ended: with it nothing is sent.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// ShardOf returns the address of the server of a Cluster that has a key, as far as the client knows. The client follows
// a slot that moves, or whose server was replaced, as soon as a server reports it. Without a Cluster there is one
// part, "".
func (b *Backend) ShardOf(name, key string) string {
	if b.cluster == nil || !b.mapped.Load() {
		return ""
	}
	return b.partAt(b.places(name).of(key))
}

func (b *Backend) partAt(p *place) string {
	server, err := b.cluster.MasterForKey(ended, p.start)
	if err != nil {
		return ""
	}
	return server.Options().Addr
}

// answered notes that a server of the Cluster has answered: from now on the client knows which server has which slot,
// and MasterForKey does not have to ask.
func (b *Backend) answered() {
	if b.cluster != nil && !b.mapped.Load() {
		b.mapped.Store(true)
	}
}

// elsewhere yields a place of the limiter on each server of the Cluster but that of the definition, up to three.
func (b *Backend) elsewhere(l *limiterPlaces) []*place {
	if b.cluster == nil || !b.mapped.Load() {
		return nil
	}
	seen := map[string]bool{"": true, b.partAt(l.of("")): true}
	var some []*place
	for i := range placesOf {
		p := l.at(i)
		if at := b.partAt(p); !seen[at] && len(some) < 3 {
			seen[at] = true
			some = append(some, p)
		}
	}
	return some
}

// subscribe listens at any server of a Cluster: they all tell what is published at one of them. The channel's own
// server would be missed by everybody while it is away.
func (b *Backend) subscribe(ctx context.Context) *redis.PubSub {
	if b.cluster != nil && b.mapped.Load() {
		if server, err := b.cluster.MasterForKey(ended, rand.Text()); err == nil {
			return server.Subscribe(ctx, b.names.channel())
		}
	}
	return b.client.Subscribe(ctx, b.names.channel())
}
