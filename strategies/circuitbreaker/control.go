package circuitbreaker

import "sync/atomic"

// A Control opens and closes circuits by hand: those of all strategies that have it as their [Options.Control]. The
// zero Control is ready to use and leaves the circuits alone. It is safe for concurrent use, and must not be copied.
//
// Isolate and Reset apply at once, also to strategies that are made later. A Control does not know its strategies:
// each strategy looks at the Control in its next execution, and when a probe ends. The execution that finds a change
// reports the event and calls [Options.OnOpened] or [Options.OnClosed].
type Control struct {
	// version is 2 × the number of calls of Isolate and Reset, plus 1 if the last one was Isolate. It only grows, so that a
	// strategy sees that there was a call since it last looked.
	version atomic.Uint64
}

// Isolate opens the circuits until [Control.Reset]. Executions that run already go on, and their outcomes do not count.
func (c *Control) Isolate() {
	for old := c.version.Load(); !isolated(old) && !c.version.CompareAndSwap(old, old+3); old = c.version.Load() {
	}
}

// Reset closes the circuits, whatever opened them, and resets their counts.
func (c *Control) Reset() {
	for old := c.version.Load(); !c.version.CompareAndSwap(old, (old+2)&^1); old = c.version.Load() {
	}
}

// Isolated reports whether the last call was Isolate.
func (c *Control) Isolated() bool { return isolated(c.version.Load()) }

func isolated(version uint64) bool { return version&1 == 1 }
