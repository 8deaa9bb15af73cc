// Package background has what a Store does without a caller, and ends it.
package background

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Group is the goroutines of a Store, and what Close waits for. It is safe for use by many goroutines.
type Group struct {
	ctx      context.Context // ends with Close
	cancel   context.CancelCauseFunc
	running  sync.WaitGroup // the goroutines of Go
	mu       sync.Mutex     // held while Go starts one, and while the Context ends
	underWay atomic.Int64   // what WaitIdle waits for
	idle     chan struct{}  // one signal: underWay has become 0
}

func New() *Group {
	g := &Group{idle: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// Context ends with Close.
func (g *Group) Context() context.Context { return g.ctx }

// Err returns the reason of Close, or nil.
func (g *Group) Err() error { return context.Cause(g.ctx) }

// Go runs f on a goroutine that Close waits for. f must return soon after Context has ended. After Close,
// f is not run.
func (g *Group) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() == nil {
		g.running.Go(f)
	}
}

// Sleep reports whether d has passed; false means that the Group was closed.
func (g *Group) Sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-g.ctx.Done():
		return false
	}
}

// Begin makes WaitIdle wait until End is called.
func (g *Group) Begin() { g.underWay.Add(1) }

// End is called once for each Begin.
func (g *Group) End() {
	if g.underWay.Add(-1) == 0 {
		select {
		case g.idle <- struct{}{}:
		default:
		}
	}
}

// WaitIdle waits until all that has begun has ended, or until limit.
func (g *Group) WaitIdle(limit time.Time) {
	timeout := time.NewTimer(time.Until(limit))
	defer timeout.Stop()
	for g.underWay.Load() > 0 {
		select {
		case <-g.idle:
		case <-timeout.C:
			return
		}
	}
}

// Close ends the Context, and waits for the goroutines of Go.
func (g *Group) Close(reason error) {
	g.mu.Lock()
	g.cancel(reason)
	g.mu.Unlock()
	g.running.Wait()
}
