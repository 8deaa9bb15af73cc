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

// guard is a circuit breaker around a part of the store: once the part counts as away, asking for
// it costs one atomic load, and a single goroutine looks whether it is back.
type guard struct {
	s     *Store
	p     *part                  // that it guards
	away  atomic.Pointer[outage] // nil: the part is there
	epoch atomic.Int64           // how many failures were counted

	checking atomic.Bool // check is under way

	mu       sync.Mutex
	failures int // in a row
}

type outage struct {
	err   error
	since time.Time
}

// err returns why the part cannot be asked, or nil.
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

// A moment is when a call was begun. Calls that were under way together and fail together have one cause: a pause
// of the network fails all of them, and counts as one failure.
type moment int64

func (g *guard) now() moment { return moment(g.epoch.Load()) }

// came counts the end of a call that needs what limiters need.
func (g *guard) came(begun moment, err error) {
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

// cameFromReading counts the end of a call that only reads: that it succeeds does not say
// that the store can be written to.
func (g *guard) cameFromReading(begun moment, err error) {
	if err != nil {
		g.came(begun, err)
		return
	}
	g.s.count.calls.Add(1)
}

func (g *guard) succeeded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures = 0
}

// failed counts a failure, unless one was counted after the call had begun.
func (g *guard) failed(begun moment, err error) {
	if g.s.ctx.Err() != nil {
		return // it is Close that made it fail
	}
	g.mu.Lock()
	if g.now() != begun {
		g.mu.Unlock()
		return
	}
	g.epoch.Add(1)
	g.failures++
	lost := g.failures >= g.s.o.FailureThreshold && g.away.Load() == nil
	if lost {
		g.away.Store(&outage{err: g.says(err), since: time.Now()})
	}
	g.mu.Unlock()
	if lost {
		g.s.settles()
		g.s.report(Event{Kind: EventStoreLost, Shard: g.p.name, Err: err})
		g.s.wakePart(g.p) // for those who wait, the outage policy holds, too
		g.s.goes(g.probe)
	}
}

func (g *guard) says(err error) error {
	if g.p.name != "" {
		err = fmt.Errorf("%s: %w", g.p.name, err)
	}
	return unavailable(err)
}

// probe looks for the part until it is back, or until no key is in it any more.
func (g *guard) probe() {
	for {
		interval := float64(g.s.o.ProbeInterval) * (0.8 + 0.4*rand.Float64())
		if !g.s.sleeps(time.Duration(interval)) {
			return
		}
		d, key, found := g.s.probeOf(g.p)
		if !found {
			g.s.forgetPart(g.p)
			g.recover() // its keys have moved, and are asked for where they are now
			return
		}
		err := g.look(d, key)
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

// check looks for the part once, in the background, and counts the result as that of a call. It is called when a caller
// has left before the answer came: if all callers have deadlines shorter than CallTimeout, no call of theirs can tell a
// store that hangs from a caller that does not wait. At most one check is under way at a time.
func (g *guard) check() {
	if g.err() != nil || !g.checking.CompareAndSwap(false, true) {
		return
	}
	g.s.goes(func() {
		defer g.checking.Store(false)
		d, key, found := g.s.probeOf(g.p)
		if !found {
			return
		}
		begun := g.now()
		if err := g.look(d, key); g.s.ctx.Err() == nil {
			g.came(begun, err)
		}
	})
}

// look asks what a limiter asks: a store that can be read but not written to is away, and so
// is one that is slow. It waits for the backend however long that takes: there is never
// more than one probe, and one check.
func (g *guard) look(d *backend.Definition, key string) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(g.s.ctx, g.s.o.CallTimeout)
	defer cancel()
	probe := &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{{Min: 1, Max: 1}}, Granted: make([]int64, 1)}
	done := onItsOwn("store: Backend.Decide", func() error {
		err := g.s.backend.Decide(ctx, []*backend.Batch{probe})
		if err == nil && probe.Outcome == backend.Unreachable {
			err = why(probe.Err)
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

// why is the reason that a backend has given for an outcome.
func why(err error) error {
	if err == nil {
		return errors.New("the backend has given no reason")
	}
	return err
}

// onItsOwn calls f, which asks the backend, on a goroutine of its own: a backend that panics or ends its goroutine
// ends nothing else.
func onItsOwn(hook string, f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errNoReturn
		defer func() { done <- err }()
		recovered.Call(hook, func() { err = f() })
	}()
	return done
}

// probed is what probes take from: a second's window that is never used up. It is in no
// store's table of definitions.
var probed = &backend.Definition{
	Name: "weir/probe", Version: 1, Limits: backend.Limits{Kind: backend.KindFixedWindow, Permits: backend.MaxPermits, Period: 1e6},
}

func (g *guard) recover() {
	g.mu.Lock()
	g.failures = 0
	was := g.away.Swap(nil)
	g.mu.Unlock()
	g.s.report(Event{Kind: EventStoreRecovered, Shard: g.p.name, Away: time.Since(was.since)})
	g.s.wakePart(g.p)
	for _, c := range g.s.all() {
		c.refreshSoon() // it may have been reconfigured meanwhile, and the store may have forgotten it
	}
}
