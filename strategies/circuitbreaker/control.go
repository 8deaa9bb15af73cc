package circuitbreaker

import "sync/atomic"

// A Control opens and closes by hand the circuits of all strategies whose [Options.Control] it is. The zero Control is
// ready to use and leaves the circuits alone. It is safe for concurrent use, and must not be copied.
//
// An order applies at once, and to strategies that are made later, too. A strategy carries it out in its next execution,
// or when a probe ends; that execution reports the event and calls [Options.OnOpened] or [Options.OnClosed]. So a Control
// has no references to strategies.
type Control struct {
	// orders is 2 × the number of orders, plus 1 if the last one was Isolate. It only grows, so that a strategy sees that
	// there was an order since it last looked.
	orders atomic.Uint64
}

// Isolate opens the circuits until [Control.Close]. Executions that run already go on, and their outcomes do not count.
func (c *Control) Isolate() {
	for {
		old := c.orders.Load()
		if isolates(old) || c.orders.CompareAndSwap(old, old+3) {
			return
		}
	}
}

// Close closes the circuits, whatever opened them, and resets their counts.
func (c *Control) Close() {
	for {
		old := c.orders.Load()
		if c.orders.CompareAndSwap(old, (old+2)&^1) {
			return
		}
	}
}

// Isolated reports whether the last order was Isolate.
func (c *Control) Isolated() bool { return isolates(c.orders.Load()) }

// isolates reports whether orders, with that value, ends with Isolate.
func isolates(order uint64) bool { return order&1 == 1 }
