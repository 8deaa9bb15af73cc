package store

import (
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// A loadedDefinition is the definition in force here, which is loaded again at the moment due.
type loadedDefinition struct {
	*backend.Definition
	due      time.Time
	override *override // nil: there is none
	ends     time.Time // when the override ends, by the clock of this process
}

// newLoadedDefinition returns the definition that was loaded when the store's clock showed now.
func (c *core) newLoadedDefinition(d *backend.Definition, now int64) *loadedDefinition {
	in := &loadedDefinition{Definition: d, due: c.nextRefresh(), override: overrideIn(d)}
	if in.override != nil {
		in.ends = time.Now().Add(duration(in.override.Until - now))
	}
	return in
}

// dueAt returns in, to be loaded again at another moment.
func (in *loadedDefinition) dueAt(due time.Time) *loadedDefinition {
	later := *in
	later.due = due
	return &later
}

func (c *core) nextRefresh() time.Time {
	return time.Now().Add(time.Duration(float64(c.s.o.RefreshInterval) * (0.8 + 0.2*rand.Float64())))
}

// A definitionLoad is a load of a limiter's definition. Callers that need one while it is under way share it.
type definitionLoad struct {
	done chan struct{}
	err  error
}

// shareLoad returns the load that is under way. If there is none, it starts load, and own is true.
func (c *core) shareLoad(load func() error) (l *definitionLoad, own bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.load != nil {
		return c.load, false
	}
	l = &definitionLoad{done: make(chan struct{})}
	c.load = l
	go func() {
		l.err = load()
		c.mu.Lock()
		c.load = nil
		c.mu.Unlock()
		close(l.done)
	}()
	return l, true
}

// lockDefinition waits until no other goroutine of this core changes the definition; unlock lets the next one
// in. It is not a mutex, because time does not advance in testing/synctest while a goroutine waits for a mutex.
func (c *core) lockDefinition() (unlock func()) {
	c.definitionLock <- struct{}{}
	return func() { <-c.definitionLock }
}

// defineTimeouts times CallTimeout is the longest that define takes: no attempt starts after twice CallTimeout, and an
// attempt is two calls.
const defineTimeouts = 4

// lockDefinitionInTime is lockDefinition that returns an error after defineTimeouts times CallTimeout.
func (c *core) lockDefinitionInTime() (unlock func(), err error) {
	limit := time.NewTimer(defineTimeouts * c.s.o.CallTimeout)
	defer limit.Stop()
	select {
	case c.definitionLock <- struct{}{}:
		return func() { <-c.definitionLock }, nil
	case <-limit.C:
		return nil, calls.Unavailable(calls.ErrReconfiguring)
	}
}

// defineFirst defines the limits of the constructor, or those of a ReconfigureLater that the store does not have yet. It
// does nothing if a definition is in force already.
func (c *core) defineFirst() error {
	defer c.lockDefinition()()
	return c.defineFirstLocked()
}

// defineFirstLocked is defineFirst for a caller that holds lockDefinition.
func (c *core) defineFirstLocked() error {
	if c.inForce.Load() != nil {
		return nil
	}
	if limits, by, pending := c.pendingReconfigure(); pending {
		return c.define(definitionChange{limits: limits, why: forReconfigureLater, by: by})
	}
	return c.define(definitionChange{limits: c.limits(), why: forFirstUse, by: c.madeAt})
}

// adopt puts a definition in force here, unless a newer one is known. now is the store's time at which it was loaded, and
// why says why an override has ended that the definition does not have any more.
func (c *core) adopt(d *backend.Definition, now int64, why string) {
	for {
		old := c.inForce.Load()
		if old != nil && old.Version > d.Version {
			return
		}
		next := c.newLoadedDefinition(d, now)
		if !c.inForce.CompareAndSwap(old, next) {
			continue
		}
		c.watchOverride()
		if old == nil || old.Version != d.Version {
			c.s.listen()
			c.keys.reconfigured()
		}
		if old != nil && old.Version != d.Version {
			c.s.report(Event{Kind: EventReconfigured, Limiter: c.name})
		}
		c.reportOverrides(old, next, now, why)
		return
	}
}
