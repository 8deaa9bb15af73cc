package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store/backend"
)

// inForce is a definition, and when to look whether it has changed.
type inForce struct {
	*backend.Definition
	due time.Time
}

func (c *core) newInForce(d *backend.Definition) *inForce {
	every := float64(c.s.o.RefreshInterval) * (0.8 + 0.2*rand.Float64())
	return &inForce{Definition: d, due: time.Now().Add(time.Duration(every))}
}

// A definitionLoad is the first question for a limiter's definition. All callers who need the answer wait for it.
type definitionLoad struct {
	done chan struct{}
	err  error
}

// defined makes sure that a definition is in force, and asks the store for it the first time.
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

// lockDefinition waits until nobody else here is defining the limiter; the function that it returns lets
// the next begin. It is no mutex, because those who wait for one stop the time in
// testing/synctest.
func (c *core) lockDefinition() (done func()) {
	c.definitionLock <- struct{}{}
	return func() { <-c.definitionLock }
}

// defineTimeouts is how many times CallTimeout define may take: no try begins after two, and a try is two calls.
const defineTimeouts = 4

// lockDefinitionInTime is alone for a caller who waits. It returns an error if others are at it for so long.
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

// defineFirst sets the limits of the constructor, unless somebody was faster here.
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
	p := c.s.shardOf(c.name, "")
	begun := p.breaker.current()
	got, err := callWithTimeout(c.s, func(ctx context.Context) (l loaded, err error) {
		l.d, l.now, err = c.s.backend.Load(ctx, c.name)
		return l, err
	})
	if p.breaker.recordRead(begun, err); err != nil {
		return nil, 0, unavailable(err)
	}
	return got.d, got.now, nil
}

// adopt puts a definition in force here. An older one than is known changes nothing.
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
