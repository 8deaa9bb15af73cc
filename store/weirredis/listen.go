package weirredis

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/backend"
)

// Listen implements [backend.Backend]. A lost connection is noticed within 20 s even if nothing reports it. Listen has
// its own connection.
func (b *Backend) Listen(ctx context.Context, ready func(), notice func(backend.Notice)) error {
	if err := ctx.Err(); err != nil {
		return wrap(ctx, "listen", err)
	}
	sub := b.subscribe(ctx, b.names.channel())
	// ReceiveTimeout does not watch the context.
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = sub.Close()
	})
	defer func() {
		if !stop() {
			<-ended
		}
		_ = sub.Close() // the second call does nothing
	}()
	return wrap(ctx, "listen", b.listen(ctx, sub, ready, notice))
}

func (b *Backend) listen(ctx context.Context, sub *redis.PubSub, ready func(), notice func(backend.Notice)) error {
	// After b.silence without a message, a ping asks whether the server is there. The server must answer within
	// b.silence.
	subscribed, asked := false, false
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		message, err := sub.ReceiveTimeout(ctx, b.silence)
		switch {
		case err == nil:
			asked = false
		case !timedOut(err) || asked || !subscribed:
			return err
		default:
			asked = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		}
		switch m := message.(type) {
		case *redis.Subscription:
			if subscribed {
				// go-redis has reconnected; notices in between are lost.
				return errors.New("the connection was lost")
			}
			subscribed = true
			ready()
		case *redis.Message:
			if n, ok := b.names.notice(m.Payload); ok { // others can publish anything
				notice(n)
			}
		}
	}
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
