package store

import (
	"github.com/weir-go/weir/store/backend"
)

// reconfigureLater has the store told of new limits in the background.
func (c *core) reconfigureLater(o any) error {
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
		c.s.goBackground(c.reconfigureLoop)
	}
	return nil
}

// pendingReconfigure returns the limits that are wanted and since when, and whether the store is yet to be told of them.
func (c *core) pendingReconfigure() (limits backend.Limits, by stamp, telling bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wantedLimits, c.wantedAt, c.reconfiguring
}

// reconfigureLoop goes on until the store has what is wanted, whatever that has become meanwhile.
func (c *core) reconfigureLoop() {
	var told stamp
	for {
		c.mu.Lock()
		wanted, by := c.wantedLimits, c.wantedAt
		c.reconfiguring = told != by && !c.closed.Load()
		on := c.reconfiguring
		c.mu.Unlock()
		switch {
		case !on:
			return
		case c.reconfigureOnce(wanted, by) == nil:
			told = by
			c.convertNow()
		case !c.s.sleep(c.s.o.ProbeInterval):
			return
		}
	}
}

func (c *core) reconfigureOnce(wanted backend.Limits, by stamp) error {
	defer c.lockDefinition()()
	if err := c.s.cannotAsk(c.s.shardOf(c.name, "")); err != nil {
		return err
	}
	return c.define(wanted, forReconfigureLater, by)
}
