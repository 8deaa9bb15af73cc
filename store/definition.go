package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// inForce is a definition, and when it must be loaded again.
type inForce struct {
	*backend.Definition
	due time.Time
}

func (c *core) newInForce(d *backend.Definition) *inForce {
	every := float64(c.s.o.RefreshInterval) * (0.8 + 0.2*rand.Float64())
	return &inForce{Definition: d, due: time.Now().Add(time.Duration(every))}
}

// A definitionLoad is the first load of a limiter's definition. All callers wait for the same one.
type definitionLoad struct {
	done chan struct{}
	err  error
}

// defined returns when a definition is in force. The first time, it loads it from the store.
func (c *core) defined(ctx context.Context, limit *time.Timer) error {
	if c.inForce.Load() != nil {
		c.refreshIfDue(time.Now())
		return nil
	}
	f := c.startFirstLoad()
	if err := wait(ctx, limit, f.done); err != nil {
		return err
	}
	return f.err
}

func (c *core) startFirstLoad() *definitionLoad {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firstLoad != nil {
		return c.firstLoad
	}
	f := &definitionLoad{done: make(chan struct{})}
	c.firstLoad = f
	go func() {
		f.err = c.defineFirst()
		c.mu.Lock()
		c.firstLoad = nil
		c.mu.Unlock()
		close(f.done)
	}()
	return f
}

// lockDefinition waits until no other goroutine of this core loads or changes the definition; done lets the next one
// in. It is not a mutex, because a goroutine that waits for a mutex stops the time in testing/synctest.
func (c *core) lockDefinition() (done func()) {
	c.definitionLock <- struct{}{}
	return func() { <-c.definitionLock }
}

// defineTimeouts is how many times CallTimeout define takes at most: no attempt starts after two of them, and an
// attempt is two calls.
const defineTimeouts = 4

// lockDefinitionInTime is lockDefinition for a caller that waits: it returns an error after that time.
func (c *core) lockDefinitionInTime() (done func(), err error) {
	limit := time.NewTimer(defineTimeouts * c.s.o.CallTimeout)
	defer limit.Stop()
	select {
	case c.definitionLock <- struct{}{}:
		return func() { <-c.definitionLock }, nil
	case <-limit.C:
		return nil, unavailable(errReconfiguring)
	}
}

// defineFirst sets the limits of the constructor, unless another goroutine has.
func (c *core) defineFirst() error {
	defer c.lockDefinition()()
	if c.inForce.Load() != nil {
		return nil
	}
	if limits, by, telling := c.pendingReconfigure(); telling {
		return c.define(limits, forReconfigureLater, by)
	}
	return c.define(c.limits(), forFirstUse, c.madeAt)
}

func (c *core) loadDefinition() (found *backend.Definition, now int64, err error) {
	type loaded struct {
		d   *backend.Definition
		now int64
	}
	sh := c.s.shardOf(c.name, "")
	begun := sh.breaker.current()
	got, err := callWithTimeout(c.s, func(ctx context.Context) (l loaded, err error) {
		l.d, l.now, err = c.s.backend.Load(ctx, c.name)
		return l, err
	})
	if sh.breaker.recordRead(begun, err); err != nil {
		return nil, 0, unavailable(err)
	}
	return got.d, got.now, nil
}

// adopt puts a definition in force here, unless a newer one is known.
func (c *core) adopt(d *backend.Definition) {
	for {
		old := c.inForce.Load()
		if old != nil && old.Version > d.Version {
			return
		}
		if !c.inForce.CompareAndSwap(old, c.newInForce(d)) {
			continue
		}
		if old == nil || old.Version != d.Version {
			c.s.listen()
			c.keys.reconfigured()
		}
		if old != nil && old.Version != d.Version {
			c.s.report(Event{Kind: EventReconfigured, Limiter: c.name})
		}
		return
	}
}
