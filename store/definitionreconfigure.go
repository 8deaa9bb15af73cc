package store

import (
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/internal/calls"
)

// reconfigureLater is ReconfigureLater.
func (c *core) reconfigureLater(o limiter.Options) error {
	limits, q, err := c.splitForReconfigure(o)
	if err != nil {
		return err
	}
	c.setQueueing(q)
	c.mu.Lock()
	begin := !c.reconfiguring
	c.wantedLimits, c.wantedAt, c.reconfiguring = limits, newStamp(), true
	c.mu.Unlock()
	if begin {
		c.s.calls.Go(c.reconfigureLoop)
	}
	return nil
}

// pendingReconfigure returns the wanted limits, since when they are wanted, and whether the store does not have them
// yet.
func (c *core) pendingReconfigure() (limits rate.Schedule, by stamp, pending bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wantedLimits, c.wantedAt, c.reconfiguring
}

// reconfigureLoop runs until the store has the wanted limits, which can change meanwhile.
func (c *core) reconfigureLoop() {
	var sent stamp
	for {
		c.mu.Lock()
		wanted, by := c.wantedLimits, c.wantedAt
		c.reconfiguring = sent != by && !c.closed.Load()
		more := c.reconfiguring
		c.mu.Unlock()
		switch {
		case !more:
			return
		case c.reconfigureOnce(wanted, by) == nil:
			sent = by
			c.convertNow()
		case !c.s.calls.Sleep(c.s.o.ProbeInterval):
			return
		}
	}
}

func (c *core) reconfigureOnce(wanted rate.Schedule, by stamp) error {
	defer c.lockDefinition()()
	if err := c.s.calls.Check(c.name, ""); err != nil {
		return err
	}
	return c.define(definitionChange{limits: wanted, why: forReconfigureLater, by: by})
}

// reconfigure is Reconfigure.
func (c *core) reconfigure(o limiter.Options) error {
	limits, q, err := c.splitForReconfigure(o)
	if err != nil {
		return err
	}
	if err := c.setLimits(limits, q); err != nil {
		return err
	}
	c.convertNow()
	return nil
}

// splitSameKind is split for limits that must be of the limiter's kind.
func (c *core) splitSameKind(p *validate.Problems, o limiter.Options) (rate.Schedule, queueing) {
	limits, q := split(p, o)
	if limits.Kind != 0 && limits.Kind != c.madeWith.Kind {
		p.Add("Kind", limits.Kind.String(), "must stay %v on a live limiter", c.madeWith.Kind)
	}
	return limits, q
}

// splitForReconfigure splits new limits.
func (c *core) splitForReconfigure(o limiter.Options) (rate.Schedule, queueing, error) {
	var p validate.Problems
	limits, q := c.splitSameKind(&p, o)
	err := p.Err("store")
	if err == nil && c.closed.Load() {
		err = limiter.ErrClosed
	}
	return limits, q, err
}

// queueingInForce returns how the queues of this instance are: as an override says, or as they were configured.
func (c *core) queueingInForce() *queueing {
	if in := c.inForce.Load(); in != nil && in.override != nil {
		return &in.override.queueing
	}
	return c.queueing.Load()
}

// setQueueing changes the queues of this instance.
func (c *core) setQueueing(q queueing) {
	if old := c.queueing.Swap(&q); *old != q {
		c.keys.reconfigured()
	}
}

func (c *core) setLimits(limits rate.Schedule, q queueing) error {
	unlock, err := c.lockDefinitionInTime()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.s.calls.Check(c.name, ""); err != nil {
		return calls.Unavailable(err)
	}
	by := newStamp()
	if err := c.define(definitionChange{limits: limits, why: forReconfigure, by: by}); err != nil {
		return err
	}
	c.mu.Lock()
	c.wantedLimits, c.wantedAt = limits, by
	c.mu.Unlock()
	c.setQueueing(q)
	return nil
}

// convertNow makes a call, so that the state of a limiter that is not partitioned is converted at once: under the old
// definition the store could forget it too early. The state of a key is converted when the key is used. If it is full by
// then under the old limits, it is full under the new limits, too.
func (c *core) convertNow() {
	if !c.partitioned {
		_, _ = c.askAvailable(c.s.calls.Context(), "") // if it fails, the next call converts
	}
}
