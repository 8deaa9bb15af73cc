package store

import (
	"errors"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
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

// checkNew returns o's limits, which are to come into force, and adds to p what is wrong with them. The error is that of p or
// [limiter.ErrClosed].
func (h *handle) checkNew(p *validate.Problems, o limiter.Options) (rate.Limits, error) {
	c, l := h.c, storable(p, o)
	if is := c.keeper.Kind(); l.Kind != 0 && l.Kind != is {
		p.Add("Kind", l.Kind.String(), "must stay %v on a live limiter", is)
	}
	err := p.Err("store")
	if err == nil && c.closed.Load() {
		err = limiter.ErrClosed
	}
	return l, err
}

// changed returns the error of a call that has changed the definition, unless err is not nil.
func (h *handle) changed(err error) error {
	switch {
	case err == nil:
		h.c.convertNow()
	case !errors.Is(err, weir.ErrInvalidOptions) && !errors.Is(err, ErrNotOverridden):
		err = calls.Unavailable(err)
	}
	return err
}

// convertNow makes a call, so that the state of a limiter that is not partitioned is converted at once: under the old
// definition the store could forget it too early. The state of a key is converted when the key is used. If it is full by
// then under the old limits, it is full under the new limits, too.
func (c *core) convertNow() {
	if !c.partitioned {
		_, _, _ = c.askFree(c.s.background.Context(), "") // if it fails, the next call converts
	}
}
