package store

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/definition"
)

// newKeeper returns what keeps the definition of c, which was made with these limits.
func (c *core) newKeeper(limits rate.Limits) *definition.Keeper {
	s := c.s
	return definition.New(limits, definition.Host{
		Name: c.name, Generation: c.o.Generation,
		CallTimeout: s.o.CallTimeout, RefreshInterval: s.o.RefreshInterval, RetryInterval: s.o.ProbeInterval,
		Load: c.loadDefinition, Define: c.define,
		Away: func() error {
			if c.closed.Load() {
				return limiter.ErrClosed
			}
			return s.checkShard(s.shardOf(c.name, ""))
		},
		After: func(d time.Duration, f func()) *time.Timer {
			return time.AfterFunc(d, func() {
				if !c.closed.Load() {
					f()
				}
			})
		},
		Changed: func(again bool) {
			s.listen()
			c.keys.reconfigured()
			if again {
				s.report(Event{Kind: EventReconfigured, Limiter: c.name})
			}
		},
		Settled:   c.convertNow,
		Overruled: func(err error) { s.report(Event{Kind: EventOverruled, Limiter: c.name, Err: err}) },
	})
}

// loadDefinition returns the definition in the store, or nil if there is none, and the store's time.
func (c *core) loadDefinition() (found *backend.Definition, now int64, err error) {
	type loaded struct {
		d   *backend.Definition
		now int64
	}
	sh := c.s.shardOf(c.name, "")
	begun := sh.breaker.current()
	l, err := callWithTimeout(c.s, func(ctx context.Context) (l loaded, err error) {
		l.d, l.now, err = c.s.backend.Load(ctx, c.name)
		return l, err
	})
	sh.breaker.recordRead(begun, err)
	return l.d, l.now, err
}

// define puts next in place of the definition with the version old. It reports whether next is stored now. If not, another
// instance was first.
func (c *core) define(old int64, next *backend.Definition) (bool, error) {
	sh := c.s.shardOf(c.name, "")
	begun := sh.breaker.current()
	defined, err := callWithTimeout(c.s, func(ctx context.Context) (bool, error) { return c.s.backend.Define(ctx, old, next) })
	sh.breaker.recordOp(define, begun, err)
	return defined, err
}

// sendDefined sends a call as soon as a definition is in force, also if [FailOpen] has admitted its caller meanwhile: the
// first requests of a process count, too.
func (c *core) sendDefined(q *call) {
	l := c.keeper.Ready(time.Now())
	if l == nil {
		c.s.send(q)
		return
	}
	c.s.inFlight.Add(1)
	go func() {
		defer c.s.finishInFlight()
		if <-l.Done; l.Err != nil {
			q.fail(l.Err)
			return
		}
		c.s.send(q)
	}()
}

// waitDefined waits until a definition is in force. At the first use it starts to load one from the store.
func (c *core) waitDefined(ctx context.Context, limit *time.Timer) error {
	l := c.keeper.Ready(time.Now())
	if l == nil {
		return nil
	}
	if err := waitUntilDone(ctx, limit, l.Done); err != nil || l.Err == nil {
		return err
	}
	return unavailable(l.Err)
}

// checkForRaise loads the limits if a caller wants more permits than the known ones allow, because they may have been
// raised elsewhere. Callers share a check, and there is at most one a second. The error is the context's.
func (c *core) checkForRaise(ctx context.Context) error {
	l := c.keeper.CheckForRaise()
	if l == nil {
		return nil
	}
	limit := c.s.waitLimit(ctx)
	defer limit.Stop()
	if err := waitUntilDone(ctx, limit, l.Done); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// storable returns the limits of o, which must be of the limiter's kind, and adds to p what is wrong with them.
func (c *core) storable(p *validate.Problems, o limiter.Options) rate.Limits {
	l := storable(p, o)
	if is := c.keeper.Kind(); l.Kind != 0 && l.Kind != is {
		p.Add("Kind", l.Kind.String(), "must stay %v on a live limiter", is)
	}
	return l
}

// checkNew returns o's limits, which are to come into force. The error is a [weir.OptionsError] or [limiter.ErrClosed].
func (c *core) checkNew(o limiter.Options) (rate.Limits, error) {
	var p validate.Problems
	l := c.storable(&p, o)
	err := p.Err("store")
	if err == nil && c.closed.Load() {
		err = limiter.ErrClosed
	}
	return l, err
}

// changed returns the error of a call that has changed the definition, unless err is not nil.
func (c *core) changed(err error) error {
	switch {
	case err == nil:
		c.convertNow()
	case !errors.Is(err, weir.ErrInvalidOptions) && !errors.Is(err, ErrNotOverridden):
		err = unavailable(err)
	}
	return err
}

// convertNow makes a call, so that the state of a limiter that is not partitioned is converted at once: under the old
// definition the store could forget it too early. The state of a key is converted when the key is used. If it is full by
// then under the old limits, it is full under the new limits, too.
func (c *core) convertNow() {
	if !c.partitioned {
		_, _ = c.askAvailable(c.s.ctx, "") // if it fails, the next call converts
	}
}
