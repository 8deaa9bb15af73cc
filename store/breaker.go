package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// ErrUnavailable says that the store could not be asked. It is the value under [OutageKey],
// wrapped with the reason, and what Reconfigure returns when it cannot tell the store.
var ErrUnavailable = errors.New("store: unavailable")

// errTimeout is the reason where a call has not come back within Options.CallTimeout.
var errTimeout = errors.New("no answer in time")

// breaker is a circuit breaker around a part of the store: once the part counts as away, asking for
// it costs one atomic load, and a single goroutine looks whether it is back.
type breaker struct {
	s            *Store
	shard        *shard                      // that it guards
	away         atomic.Pointer[outageState] // nil: the part is there
	failureCount atomic.Int64                // how many failures were counted

	checking atomic.Bool // check is under way

	mu       sync.Mutex
	failures int // in a row
}

type outageState struct {
	err   error
	since time.Time
}

// err returns why the part cannot be asked, or nil.
func (g *breaker) err() error {
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

// A failureEpoch is when a call was begun. Calls that were under way together and fail together have one cause: a pause
// of the network fails all of them, and counts as one failure.
type failureEpoch int64

func (g *breaker) current() failureEpoch { return failureEpoch(g.failureCount.Load()) }

// record counts the end of a call that needs what limiters need.
func (g *breaker) record(begun failureEpoch, err error) {
	g.s.count.calls.Add(1)
	if err == nil {
		g.succeeded()
		return
	}
	if errors.Is(err, backend.ErrDefinition) { // the store has answered, which does not say that it can be written to
		return
	}
	g.s.count.failures.Add(1)
	g.failed(begun, err)
}

// recordRead counts the end of a call that only reads: that it succeeds does not say
// that the store can be written to.
func (g *breaker) recordRead(begun failureEpoch, err error) {
	if err != nil {
		g.record(begun, err)
		return
	}
	g.s.count.calls.Add(1)
}

func (g *breaker) succeeded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures = 0
}

// failed counts a failure, unless one was counted after the call had begun.
func (g *breaker) failed(begun failureEpoch, err error) {
	if g.s.ctx.Err() != nil {
		return // it is Close that made it fail
	}
	g.mu.Lock()
	if g.current() != begun {
		g.mu.Unlock()
		return
	}
	g.failureCount.Add(1)
	g.failures++
	lost := g.failures >= g.s.o.FailureThreshold && g.away.Load() == nil
	if lost {
		g.away.Store(&outageState{err: g.describe(err), since: time.Now()})
	}
	g.mu.Unlock()
	if lost {
		g.s.idleChanged()
		g.s.report(Event{Kind: EventStoreLost, Shard: g.shard.name, Err: err})
		g.s.wakeShard(g.shard) // for those who wait, the outage policy holds, too
		g.s.goBackground(g.probeLoop)
	}
}

func (g *breaker) describe(err error) error {
	if g.shard.name != "" {
		err = fmt.Errorf("%s: %w", g.shard.name, err)
	}
	return unavailable(err)
}

// probeLoop looks for the part until it is back, or until no key is in it any more.
func (g *breaker) probeLoop() {
	for {
		interval := float64(g.s.o.ProbeInterval) * (0.8 + 0.4*rand.Float64())
		if !g.s.sleep(time.Duration(interval)) {
			return
		}
		d, key, found := g.s.probeTarget(g.shard)
		if !found {
			g.s.forgetShard(g.shard)
			g.recover() // its keys have moved, and are asked for where they are now
			return
		}
		err := g.probeOnce(d, key)
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

// probeInBackground looks for the part once, in the background, and counts the result as that of a call. It is called when a caller
// has left before the answer came: if all callers have deadlines shorter than CallTimeout, no call of theirs can tell a
// store that hangs from a caller that does not wait. At most one check is under way at a time.
func (g *breaker) probeInBackground() {
	if g.err() != nil || !g.checking.CompareAndSwap(false, true) {
		return
	}
	g.s.goBackground(func() {
		defer g.checking.Store(false)
		d, key, found := g.s.probeTarget(g.shard)
		if !found {
			return
		}
		begun := g.current()
		if err := g.probeOnce(d, key); g.s.ctx.Err() == nil {
			g.record(begun, err)
		}
	})
}

// probeOnce asks what a limiter asks: a store that can be read but not written to is away, and so
// is one that is slow. It waits for the backend however long that takes: there is never
// more than one probe, and one check.
func (g *breaker) probeOnce(d *backend.Definition, key string) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(g.s.ctx, g.s.o.CallTimeout)
	defer cancel()
	probe := &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{{Min: 1, Max: 1}}, Granted: make([]int64, 1)}
	done := runIsolated("store: Backend.Decide", func() error {
		err := g.s.backend.Decide(ctx, []*backend.Batch{probe})
		if err == nil && probe.Outcome == backend.Unreachable {
			err = reasonOf(probe.Err)
		}
		return err
	})
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

// errNoReturn is the error of a function of the backend that has panicked, or ended its goroutine.
var errNoReturn = errors.New("the backend has panicked, or has ended its goroutine")

// reasonOf is the reason that a backend has given for an outcome.
func reasonOf(err error) error {
	if err == nil {
		return errors.New("the backend has given no reason")
	}
	return err
}

// runIsolated calls f, which asks the backend, on a goroutine of its own: a backend that panics or ends its goroutine
// ends nothing else.
func runIsolated(hook string, f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errNoReturn
		defer func() { done <- err }()
		recovered.Call(hook, func() { err = f() })
	}()
	return done
}

// probeDefinition is what probes take from: a second's window that is never used up. It is in no
// store's table of definitions.
var probeDefinition = &backend.Definition{
	Name: "weir/probe", Version: 1, Limits: backend.Limits{Kind: backend.KindFixedWindow, Permits: backend.MaxPermits, Period: 1e6},
}

func (g *breaker) recover() {
	g.mu.Lock()
	g.failures = 0
	was := g.away.Swap(nil)
	g.mu.Unlock()
	g.s.report(Event{Kind: EventStoreRecovered, Shard: g.shard.name, Away: time.Since(was.since)})
	g.s.wakeShard(g.shard)
	for _, c := range g.s.allCores() {
		c.refreshSoon() // it may have been reconfigured meanwhile, and the store may have forgotten it
	}
}
