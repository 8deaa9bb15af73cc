package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/process"
)

const (
	// cutOffTimeout is how long requests that are cut off have to return.
	cutOffTimeout = time.Second
	// lookAtRunning is the time between two looks whether connections that were taken over, such as WebSockets, have
	// ended: the server does not know of them.
	lookAtRunning = 10 * time.Millisecond
)

// shutDown ends the run:
//
//  1. /ready fails, and requests are served as before for the delay of the file, so that load balancers notice.
//  2. No connection is accepted any more, and those without a request are closed. Requests that run have the timeout
//     of the file to end.
//  3. What still runs then is cut off.
//
// A second signal goes to 3 at once.
func (g *gateway) shutDown(server *http.Server, handler *proxy.Handler, cutOff context.CancelCauseFunc) error {
	again, done := g.BeginStop()
	defer done()
	c := *g.inForce.Load()
	g.Logger.Info("the gateway stops", "running", handler.Running(), "delay", c.ShutdownDelay.String(), "timeout", c.ShutdownTimeout.String())
	process.Delay(c.ShutdownDelay, again)
	ctx, cancel := context.WithTimeout(context.Background(), c.ShutdownTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { cutOff(proxy.ErrShutdown) })
	defer stop()
	go func() {
		select {
		case <-again:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := server.Shutdown(ctx)
	if err == nil {
		err = awaitNone(ctx, handler)
	}
	if err == nil {
		g.Logger.Info("the gateway has stopped")
		return nil
	}
	g.Logger.Warn("requests that still run are cut off", "running", handler.Running())
	cutOff(proxy.ErrShutdown)
	late, cancelLate := context.WithTimeout(context.Background(), cutOffTimeout)
	defer cancelLate()
	_ = server.Shutdown(late) // lets the answers out that say so
	_ = awaitNone(late, handler)
	_ = server.Close()
	select {
	case <-again:
		return process.ErrStopped
	default:
		return nil
	}
}

// awaitNone waits until no request runs.
func awaitNone(ctx context.Context, handler *proxy.Handler) error {
	ticker := time.NewTicker(lookAtRunning)
	defer ticker.Stop()
	for handler.Running() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
