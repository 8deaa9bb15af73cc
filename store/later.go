package store

// reconfigureLater has the store told of new limits in the background.
func (c *core) reconfigureLater(o any) error {
	limits, q, err := c.mayBecome(o)
	if err != nil {
		return err
	}
	c.requeue(q)
	c.mu.Lock()
	begin := !c.telling
	c.wanted, c.telling = limits, true
	c.mu.Unlock()
	if begin {
		c.s.goes(c.tell)
	}
	return nil
}

// tells reports whether the store is yet to be told of the limits that are wanted.
func (c *core) tells() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.telling
}

// tell goes on until the store has what is wanted, whatever that has become meanwhile.
func (c *core) tell() {
	var told Limits
	for {
		c.mu.Lock()
		wanted := c.wanted
		c.telling = told != wanted && !c.closed.Load()
		on := c.telling
		c.mu.Unlock()
		switch {
		case !on:
			return
		case c.tellOf(wanted) == nil:
			told = wanted
			c.convertNow()
		case !c.s.sleeps(c.s.o.ProbeInterval):
			return
		}
	}
}

func (c *core) tellOf(wanted Limits) error {
	defer c.alone()()
	if err := c.s.cannotAsk(c.s.partOf(c.name, "")); err != nil {
		return err
	}
	return c.define(wanted, explicit)
}
