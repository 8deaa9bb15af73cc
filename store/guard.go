package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// ErrUnavailable says that the store could not be asked. It is the value under [OutageKey],
// wrapped with the reason, and what Reconfigure returns when it cannot tell the store.
var ErrUnavailable = errors.New("store: unavailable")

// errTimeout is the reason where a call has not come back within Options.CallTimeout.
var errTimeout = errors.New("no answer in time")

// guard is a circuit breaker around the store: once the store counts as away, asking for
// it costs one atomic load, and a single goroutine looks whether it is back.
type guard struct {
	s    *Store
	away atomic.Pointer[outage] // nil: the store is there

	mu       sync.Mutex
	failures int // in a row
}

type outage struct {
	err   error
	since time.Time
}

// err returns why the store cannot be asked, or nil.
func (g *guard) err() error {
	if o := g.away.Load(); o != nil {
		return o.err
	}
	return nil
}

func unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// came counts the end of a call that needs what limiters need.
func (g *guard) came(err error) {
	g.s.count.calls.Add(1)
	if err == nil {
		g.succeeded()
		return
	}
	g.s.count.failures.Add(1)
	g.failed(err)
}

// cameFromReading counts the end of a call that only reads: that it succeeds does not say
// that the store can be written to.
func (g *guard) cameFromReading(err error) {
	if err != nil {
		g.came(err)
		return
	}
	g.s.count.calls.Add(1)
}

func (g *guard) succeeded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures = 0
}

func (g *guard) failed(err error) {
	if g.s.ctx.Err() != nil {
		return // it is Close that made it fail
	}
	g.mu.Lock()
	g.failures++
	lost := g.failures >= g.s.o.FailureThreshold && g.away.Load() == nil
	if lost {
		g.away.Store(&outage{err: unavailable(err), since: time.Now()})
	}
	g.mu.Unlock()
	if lost {
		g.s.report(Event{Kind: StoreLost, Err: err})
		g.s.wakeAll() // for those who wait, the outage policy holds, too
		g.s.goes(g.probe)
	}
}

// probe looks for the store until it is back.
func (g *guard) probe() {
	for {
		interval := float64(g.s.o.ProbeInterval) * (0.8 + 0.4*rand.Float64())
		if !g.s.sleeps(time.Duration(interval)) {
			return
		}
		err := g.look()
		if g.s.ctx.Err() != nil {
			return
		}
		g.s.count.calls.Add(1)
		if err == nil {
			g.recover()
			return
		}
		g.s.count.failures.Add(1)
	}
}

// look asks what a limiter asks: a store that can be read but not written to is away, and so
// is one that is slow. It waits for the backend however long that takes: there is never
// more than one probe.
func (g *guard) look() error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(g.s.ctx, g.s.o.CallTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		probe := &Batch{Definition: probed, Asks: []Ask{{Min: 1, Max: 1}}, Granted: make([]int64, 1)}
		done <- g.s.backend.Decide(ctx, []*Batch{probe})
	}()
	select {
	case err := <-done:
		if err == nil && time.Since(begun) >= g.s.o.CallTimeout {
			err = errTimeout
		}
		return err
	case <-g.s.ctx.Done():
		return g.s.ctx.Err()
	}
}

// probed is what probes take from: a second's window that is never used up. It is in no
// store's table of definitions.
var probed = &Definition{
	Name: "weir/probe", Version: 1, Limits: Limits{Kind: KindFixedWindow, Permits: maxPermits, Period: 1e6},
}

func (g *guard) recover() {
	g.mu.Lock()
	g.failures = 0
	was := g.away.Swap(nil)
	g.mu.Unlock()
	g.s.report(Event{Kind: StoreRecovered, Away: time.Since(was.since)})
	g.s.wakeAll()
	for _, c := range g.s.all() {
		c.refreshSoon() // it may have been reconfigured meanwhile, and the store may have forgotten it
	}
}
