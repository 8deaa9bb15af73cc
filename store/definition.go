package store

import (
	"time"

	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/definition"
)

// ErrNotOverridden means that the limits of the limiter are not overridden, for example because the override has ended
// already.
var ErrNotOverridden = definition.ErrNotOverridden

// newKeeper returns what keeps the definition of c, which was made with these limits.
func newKeeper(c *core, limits rate.Limits) *definition.Keeper {
	s := c.s
	return definition.New(limits, definition.Host{
		Name: c.name, Generation: c.o.Generation,
		CallTimeout: s.o.CallTimeout, RefreshInterval: s.o.RefreshInterval, RetryInterval: s.o.ProbeInterval,
		Load: func() (*backend.Definition, int64, error) { return s.calls.Load(c.name) }, Define: s.calls.Define,
		Away: func() error { return s.calls.Check(c.name, "") },
		After: func(d time.Duration, f func()) *time.Timer {
			return time.AfterFunc(d, func() {
				if !c.closed.Load() {
					f()
				}
			})
		},
		Changed: func(again bool) {
			s.listener.start()
			c.keys.reconfigured()
			if again {
				s.report(Event{Kind: EventReconfigured, Limiter: c.name})
			}
		},
		Settled:   c.convertNow,
		Overruled: func(err error) { s.report(Event{Kind: EventOverruled, Limiter: c.name, Err: err}) },
	})
}

// convertNow makes a call, so that the state of a limiter that is not partitioned is converted at once: under the old
// definition the store could forget it too early. The state of a key is converted when the key is used. If it is full by
// then under the old limits, it is full under the new limits, too.
func (c *core) convertNow() {
	if !c.partitioned {
		_, _, _ = c.remote.askFree(c.s.background.Context(), "") // if it fails, the next call converts
	}
}
