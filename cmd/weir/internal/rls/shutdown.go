package rls

import (
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir/cmd/weir/internal/process"
)

// shutDown ends the run:
//
//  1. /ready and the health service say no, and requests are answered as before for the delay of the file, so that load
//     balancers notice.
//  2. No connection is accepted any more, and clients are told to go elsewhere. Requests that run have the timeout of the
//     file to end.
//  3. What still runs then is cut off.
//
// A second signal goes to 3 at once.
func (r *run) shutDown(s *servers) error {
	again, done := r.BeginStop()
	defer done()
	s.health.Shutdown()
	c := *r.inForce.Load()
	r.Logger.Info("the rate limit service stops", "running", s.handler.running.Load(), "delay", c.ShutdownDelay.String(), "timeout", c.ShutdownTimeout.String())
	process.Delay(c.ShutdownDelay, again)
	ctx, cancel := context.WithTimeout(context.Background(), c.ShutdownTimeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.endStreams()
		var both sync.WaitGroup
		both.Go(s.grpc.GracefulStop)
		if s.http != nil {
			both.Go(func() { _ = s.http.Shutdown(ctx) })
		}
		both.Wait()
	}()
	select {
	case <-ended:
		r.Logger.Info("the rate limit service has stopped")
		return nil
	case <-ctx.Done():
	case <-again:
	}
	r.Logger.Warn("requests that still run are cut off", "running", s.handler.running.Load())
	cancel()
	s.close() // also ends GracefulStop
	select {
	case <-ended:
	case <-time.After(process.CloseTimeout):
	}
	select {
	case <-again:
		return process.ErrStopped
	default:
		return nil
	}
}
