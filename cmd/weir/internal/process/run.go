package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// A Server is what a [Process] runs.
type Server interface {
	// InForce notes a file that has come into force, and returns what it says for all servers.
	InForce(f *reload.File) fileconfig.Common
	// Open opens the listeners. The requests of the server run through p. The functions that it returns serve, each until its
	// listener is closed, and attrs say in the log where.
	Open(p *pipeline.Pipeline) (serve []func() error, attrs []any, err error)
	// Running returns how many requests run.
	Running() int64
	// Drain accepts nothing any more, and waits until no request runs.
	Drain(ctx context.Context) error
	// CutOff makes the requests that run fail.
	CutOff()
	// Close ends what is open, at once. It is also called if Open has failed.
	Close()
}

// ErrStopped is the error of a run that was told twice to stop.
var ErrStopped = errors.New("stopped by a second signal before all requests had ended")

// Run puts the file in force, and serves until it is told to stop. The error says why it could not begin, which is a
// [*reload.FileError] if the file is wrong, or is [ErrStopped]. Requests that are cut off after the timeout are no error. Kinds have
// the part of the file that is for s, which must be required.
func (p *Process) Run(ctx context.Context, kinds *reload.Kinds, s Server) (err error) {
	var inForce atomic.Pointer[fileconfig.Common]
	p.watcher, err = reload.Start(ctx, p.Registry, p.Config, &reload.Options{
		Kinds: kinds, Read: p.Read, Hangup: true, Logger: p.Logger, Reporter: reporters{p.Telemetry, &p.Events},
		InForce: func(f *reload.File) {
			c := s.InForce(f)
			inForce.Store(&c)
		},
	})
	if err != nil {
		return err
	}
	p.onClose(p.watcher.Stop)
	for name, c := range inForce.Load().Stores { // also stores that no limiter names: /ready tells of all
		if _, err := p.Stores.Get(name, c); err != nil {
			return err
		}
	}
	requests, err := p.Registry.Get(p.Section)
	if err != nil {
		return err
	}
	p.Stores.Probe(ctx) // Envoy, which waits for 20 ms, would not wait for a connection
	defer s.Close()
	serve, attrs, err := s.Open(requests)
	if err != nil {
		return err
	}
	admin, err := p.listenAdmin(&inForce)
	if err != nil {
		return err
	}
	defer admin.close()
	failed := make(chan error, len(serve)+1)
	for _, f := range append(serve, admin.serve) {
		go func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		}()
	}
	if url := admin.url(); url != "" {
		attrs = append(attrs, "admin", url)
	}
	p.Logger.Info("the "+p.Name+" is ready", append(attrs, "config", p.Config)...)
	select {
	case <-ctx.Done():
	case <-p.Stop:
	case err := <-failed:
		return fmt.Errorf("the listener failed: %w", err)
	}
	return p.shutDown(s, inForce.Load())
}

// cutOffTimeout is how long requests that are cut off have to return.
const cutOffTimeout = time.Second

// shutDown ends the run:
//
//  1. /ready fails, and requests are answered as before for the delay of the file, so that load balancers notice.
//  2. No connection is accepted any more, and those without a request are closed. Requests that run have the timeout
//     of the file to end.
//  3. What still runs then is cut off.
//
// A second signal goes to 3 at once.
func (p *Process) shutDown(s Server, c *fileconfig.Common) error {
	p.draining.Store(true)
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	go func() {
		select {
		case <-p.Stop:
			stop(ErrStopped)
		case <-ctx.Done():
		}
	}()
	p.Logger.Info("the "+p.Name+" stops", "running", s.Running(), "delay", c.ShutdownDelay.String(), "timeout", c.ShutdownTimeout.String())
	if d, ok := s.(interface{ Stopping() }); ok {
		d.Stopping()
	}
	select {
	case <-time.After(c.ShutdownDelay):
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(ctx, c.ShutdownTimeout)
	defer cancel()
	if s.Drain(within) == nil {
		p.Logger.Info("the " + p.Name + " has stopped")
		return nil
	}
	p.Logger.Warn("requests that still run are cut off", "running", s.Running())
	s.CutOff()
	late, cancelLate := context.WithTimeout(context.Background(), cutOffTimeout)
	defer cancelLate()
	_ = s.Drain(late) // lets the answers out that say so
	return context.Cause(ctx)
}

// reporters are told of each attempt to load the file.
type reporters []reload.Reporter

func (all reporters) ConfigReloaded(at time.Time, err error) {
	for _, r := range all {
		r.ConfigReloaded(at, err)
	}
}
