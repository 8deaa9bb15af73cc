package circuitbreaker

import "sync/atomic"

// A Control opens and closes circuits by hand: those of all the strategies whose
// [Options.Control] it is. The zero Control is ready for use and leaves the
// circuits alone. It is safe for concurrent use and must not be copied.
//
// An order is in force at once, for strategies that are made later, too. A strategy
// carries it out when next it has an execution, or a probe that ends, and that is
// the execution which reports the event and calls [Options.OnOpened] or
// [Options.OnClosed]. So a Control knows no strategies, and keeps none alive.
type Control struct {
	// orders is twice the number of orders given, and one more while isolated. It
	// only ever grows, so that a strategy sees from it that there was an order.
	orders atomic.Uint64
}

// Isolate opens the circuits until [Control.Close]. Executions that are under way
// go on, and their outcomes do not count.
func (c *Control) Isolate() {
	for {
		old := c.orders.Load()
		if isolates(old) || c.orders.CompareAndSwap(old, old+3) {
			return
		}
	}
}

// Close closes the circuits, whatever opened them, and has them forget what they
// counted.
func (c *Control) Close() {
	for {
		old := c.orders.Load()
		if c.orders.CompareAndSwap(old, (old+2)&^1) {
			return
		}
	}
}

// Isolated tells whether the last order was Isolate.
func (c *Control) Isolated() bool { return isolates(c.orders.Load()) }

func isolates(order uint64) bool { return order&1 == 1 }
