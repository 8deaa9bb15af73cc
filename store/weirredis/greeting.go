package weirredis

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/recovered"
)

// A greeting makes a connection ready for calls. go-redis dials in the background, and a dial outlives the call that
// wanted the connection. What follows does not, with the option ContextTimeoutEnabled: the first call of a connection
// sends the greetings, which take up to two round trips, and if its context ends meanwhile the connection is closed.
// With a round trip of 200 ms and a CallTimeout of 500 ms no call would ever succeed. So after a call that had too
// little time, one ping is sent for all of them that has more.
type greeting struct {
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	busy   atomic.Bool
}

// greetingTimeout is how long a greeting may take, with the dial.
const greetingTimeout = 10 * time.Second

// clientHooks names the client's hooks in the log.
const clientHooks = "weirredis: hooks of the client"

func (g *greeting) init() { g.ctx, g.cancel = context.WithCancel(context.Background()) }

// greetAfter is for a call that has failed. It does not wait.
func (b *Backend) greetAfter(ctx context.Context) {
	g := &b.greeting
	if ctx.Err() == nil || g.ctx.Err() != nil || !b.Interruptible() || !g.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer g.busy.Store(false)
		recovered.Call(clientHooks, func() {
			ctx, cancel := context.WithTimeout(g.ctx, greetingTimeout)
			defer cancel()
			b.greet(ctx)
		})
	}()
}

// greet ignores errors: the next call sees them itself.
func (b *Backend) greet(ctx context.Context) {
	if b.cluster == nil {
		b.client.Ping(ctx)
		return
	}
	_ = b.cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		recovered.Call(clientHooks, func() { server.Ping(ctx) }) // on a goroutine that go-redis has started
		return nil
	})
}
