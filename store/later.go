package store

import (
	"github.com/weir-go/weir/store/backend"
)

// reconfigureLater has the store told of new limits in the background.
func (c *core) reconfigureLater(o any) error {
	limits, q, err := c.mayBecome(o)
	if err != nil {
		return err
	}
	c.requeue(q)
	c.mu.Lock()
	begin := !c.telling
	c.wanted, c.wantedBy, c.telling = limits, newBirth(), true
	c.mu.Unlock()
	if begin {
		c.s.goes(c.tell)
	}
	return nil
}

// wants returns the limits that are wanted and since when, and whether the store is yet to be told of them.
func (c *core) wants() (limits backend.Limits, by birth, telling bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted, c.wantedBy, c.telling
}

// tell goes on until the store has what is wanted, whatever that has become meanwhile.
func (c *core) tell() {
	var told birth
	for {
		c.mu.Lock()
		wanted, by := c.wanted, c.wantedBy
		c.telling = told != by && !c.closed.Load()
		on := c.telling
		c.mu.Unlock()
		switch {
		case !on:
			return
		case c.tellOf(wanted, by) == nil:
			told = by
			c.convertNow()
		case !c.s.sleeps(c.s.o.ProbeInterval):
			return
		}
	}
}

func (c *core) tellOf(wanted backend.Limits, by birth) error {
	defer c.alone()()
	if err := c.s.cannotAsk(c.s.partOf(c.name, "")); err != nil {
		return err
	}
	return c.define(wanted, later, by)
}
