package weirredis

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/recovered"
)

// servers run scripts for a Backend.
type servers struct {
	client     redis.UniversalClient
	cluster    *redis.ClusterClient // nil without a Cluster
	slotsKnown atomic.Bool          // of a Cluster: the client knows which server has which slot
	ctx        context.Context      // ends with Close
	cancel     context.CancelFunc
	warming    atomic.Bool
}

// ended is a context that has ended, so that MasterForKey sends nothing.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

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

// warmUpAfter is called after a failed call. It does not wait.
//
// A warmup makes a connection ready for calls. go-redis dials in the background, and a dial goes on after the call that
// wanted the connection has ended. The handshake does not: the first call of a connection makes it, which takes up to
// two round trips. With ContextTimeoutEnabled, the connection is closed if the call's context ends during the handshake.
// With a round trip of 200 ms and a CallTimeout of 500 ms no call would ever succeed. Therefore, after a call whose
// context has ended, a warmup sends a ping with more time. Only one warmup runs at a time.
func (s *servers) warmUpAfter(ctx context.Context) {
	if ctx.Err() == nil || s.ctx.Err() != nil || !s.warming.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.warming.Store(false)
		recovered.Call(clientHooks, func() {
			ctx, cancel := context.WithTimeout(s.ctx, warmupTimeout)
			defer cancel()
			s.warmUp(ctx)
		})
	}()
}

// warmupTimeout bounds a warmup, with the dial.
const warmupTimeout = 10 * time.Second

// clientHooks names the client's hooks in the log.
const clientHooks = "weirredis: hooks of the client"

// warmUp ignores errors, which the next call gets itself.
func (s *servers) warmUp(ctx context.Context) {
	if s.cluster == nil {
		s.client.Ping(ctx)
		return
	}
	_ = s.cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		recovered.Call(clientHooks, func() { server.Ping(ctx) }) // on a goroutine of go-redis
		return nil
	})
}
