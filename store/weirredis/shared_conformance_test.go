package weirredis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/drill"
	"github.com/weir-go/weir/tools/testserver"
)

func TestSharedConformance(t *testing.T) {
	t.Parallel()
	url := testserver.Redis(t).URL
	drill.Conformance(t, store.Options{NoListen: true}, func(t testing.TB) backend.Backend {
		client := connect(t, url)
		b := newSteered(t, client, freshPrefix())
		client.AddHook(bubbleClock{b.clockKey})
		return b
	})
}

// A bubbleClock sets the clock of a steered Backend to package time's before each command.
type bubbleClock struct{ key string }

func (bubbleClock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c bubbleClock) set(ctx context.Context) redis.Cmder {
	return redis.NewStatusCmd(ctx, "set", c.key, time.Now().UnixMicro())
}

func (c bubbleClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, c.set(ctx)); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (c bubbleClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return next(ctx, append([]redis.Cmder{c.set(ctx)}, cmds...))
	}
}
