package circuitbreaker

import "sync/atomic"

// A Control opens and closes by hand the circuits of all strategies whose [Options.Control] it is. The zero Control is
// ready to use and leaves the circuits alone. It is safe for concurrent use, and must not be copied.
//
// Isolate and Close apply at once, also to strategies that are made later. A strategy carries them out in its next
// execution, or when a probe ends; that execution reports the event and calls [Options.OnOpened] or [Options.OnClosed]. So
// a Control has no references to strategies.
type Control struct {
	// version is 2 × the number of calls of Isolate and Close, plus 1 if the last one was Isolate. It only grows, so that a
	// strategy sees that there was a call since it last looked.
	version atomic.Uint64
}

// Isolate opens the circuits until [Control.Close]. Executions that run already go on, and their outcomes do not count.
func (c *Control) Isolate() {
	for old := c.version.Load(); !isolated(old) && !c.version.CompareAndSwap(old, old+3); old = c.version.Load() {
	}
}

// Close closes the circuits, whatever opened them, and resets their counts.
func (c *Control) Close() {
	for old := c.version.Load(); !c.version.CompareAndSwap(old, (old+2)&^1); old = c.version.Load() {
	}
}

// Isolated reports whether the last call was Isolate.
func (c *Control) Isolated() bool { return isolated(c.version.Load()) }

func isolated(version uint64) bool { return version&1 == 1 }
