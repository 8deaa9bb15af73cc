package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/goroutine"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
)

// checkOverride adds to p what is wrong with options that are to override the limits of the limiter.
func (res *resource) checkOverride(p *validate.Problems, o limiter.Options) {
	is, to := res.options.(LimiterOptions), rate.Of(o)
	switch {
	case to.Kind != is.Limits.Kind:
		p.Add("Options", nil, "must be a %T, got a %T", limiter.OptionsOf(is.Limits), limiter.OptionsOf(to))
	case res.inStore != nil:
		p.Include("Options", store.Check(res.id.name, to, &is.Shared))
	default:
		if err := to.Validate(); err != nil {
			p.Include("Options", err)
		} else if to.Manual != is.Limits.Manual {
			p.Add("Options.ManualReplenishment", to.Manual, "must be %v as it is, because it cannot change", is.Limits.Manual)
		}
	}
}

// An override is an [Override] that is in force.
type override struct {
	Override
	timer *time.Timer // calls endInTime; guarded by r.mu
}

// overrideCheck is the longest time between two looks at the wall clock, which can step while a timer runs, and on some
// systems goes on while the machine sleeps and timers do not.
const overrideCheck = time.Minute

// A lockedLimiter is a limiter that only this goroutine may reconfigure. Commits that use it wait. A limiter in a store is
// not locked: other instances change it at any time, and its override is kept in the store.
type lockedLimiter struct {
	registry *Registry
	*resource
	lock *reconfiguration
}

// lockLimiter waits until nothing reconfigures the limiter that find returns, and locks it. find is called with r.mu
// locked, perhaps more than once. goid is the number of this goroutine.
func (r *Registry) lockLimiter(ctx context.Context, goid uint64, find func() (*resource, error)) (*lockedLimiter, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("registry: before overriding: %w", pipeline.ContextError(ctx))
	}
	for {
		l, other, err := r.tryLockLimiter(goid, find)
		if err != nil || l != nil {
			return l, err
		}
		if err := r.waitFor(ctx, other); err != nil {
			return nil, err
		}
	}
}

// tryLockLimiter returns the limiter, locked, or the reconfiguration to wait for.
func (r *Registry) tryLockLimiter(goid uint64, find func() (*resource, error)) (*lockedLimiter, *reconfiguration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res, err := find()
	switch {
	case err != nil:
		return nil, nil, err
	case res.inStore != nil:
		return &lockedLimiter{registry: r, resource: res}, nil, nil
	case res.busy == nil:
		rc := &reconfiguration{registry: r, goroutine: goid, uses: []*resourceUse{{resource: res}}, over: make(chan struct{})}
		res.busy = rc
		return &lockedLimiter{r, res, rc}, nil, nil
	case res.busy.goroutine == goid && goid != 0:
		return nil, nil, fmt.Errorf("%w: a Reconfigure function would wait for itself, because it overrides %v", ErrReloading, res.id)
	default:
		return nil, res.busy, nil
	}
}

// change puts the override to in force and returns the one before. Either can be nil. It unlocks the limiter.
func (l *lockedLimiter) change(to *override) (old *override, err error) {
	r, res := l.registry, l.resource
	old = res.override
	was, will := res.inForce(res.options), to.on(res.options)
	if was != will {
		if err = recovered.Error(func() error { return res.reconfigure(will) }); err != nil && to != nil {
			_ = recovered.Error(func() error { return res.reconfigure(was) }) // a partitioned one may have changed some of its keys
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	res.busy = nil
	close(l.lock.over)
	switch {
	case r.closed:
		return nil, ErrClosed
	case errors.Is(err, limiter.ErrClosed) && to != nil:
		return nil, fmt.Errorf("%w: %q", ErrNoLimiter, res.id.name)
	case errors.Is(err, limiter.ErrClosed):
		err = nil // the limiter was closed meanwhile, and so the override has ended
	case err != nil && to != nil:
		return nil, fmt.Errorf("registry: overriding %v: %w", res.id, err)
	}
	if old != nil {
		old.timer.Stop()
	}
	if res.override = to; to == nil {
		delete(r.overridden, res)
		return old, err
	}
	r.overridden[res] = true
	to.Since = time.Now()
	to.timer = time.AfterFunc(to.next(), func() { r.endInTime(res, to) })
	return old, nil
}

// next returns the time until the next look at the clock.
func (o *override) next() time.Duration { return min(time.Until(o.Until), overrideCheck) }

// endInTime ends the override o if its time is over.
func (r *Registry) endInTime(res *resource, o *override) {
	r.mu.Lock()
	early := time.Until(o.Until) > 0
	if early && res.override == o && !r.closed {
		o.timer.Reset(o.next())
	}
	r.mu.Unlock()
	if !early {
		r.endOverrideOf(context.Background(), res, o, endedByTime)
	}
}

// endOverrideOf ends the override o of a limiter, if it has not ended yet. If a Reconfigure function of the program keeps
// the limiter busy, it goes on in the background: that function can be the caller.
func (r *Registry) endOverrideOf(ctx context.Context, res *resource, o *override, why string) {
	l, err := r.lockLimiter(ctx, goroutine.ID(), func() (*resource, error) {
		switch {
		case r.closed:
			return nil, ErrClosed
		case res.override != o:
			return nil, ErrNotOverridden
		}
		return res, nil
	})
	switch {
	case err == nil:
		_ = l.end(ctx, why) // reported
	case errors.Is(err, ErrReloading):
		go r.endOverrideOf(ctx, res, o, why)
	}
}

// end ends the override of the limiter, unlocks it, and reports the end.
func (l *lockedLimiter) end(ctx context.Context, why string) error {
	o, err := l.change(nil)
	if o != nil {
		l.registry.reportOverrideEnded(ctx, o.Override, why, err)
	}
	return err
}

// endUnusedOverrides ends the overrides of limiters that no version in force uses. Versions that drain can still use
// them, and a later version can use them again.
func (r *Registry) endUnusedOverrides(ctx context.Context) {
	for _, res := range r.unusedOverridden() {
		// Deferred, so that each is ended even if the Listener of another one calls runtime.Goexit.
		defer r.endOverrideOf(context.WithoutCancel(ctx), res.resource, res.override, endedRemoved)
	}
}

// An overriddenLimiter is a limiter and the override that it had.
type overriddenLimiter struct {
	resource *resource
	override *override
}

func (r *Registry) unusedOverridden() (unused []overriddenLimiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for res := range r.overridden {
		if in, err := r.limiterInForce(res.id.name); err != nil || in != res {
			unused = append(unused, overriddenLimiter{res, res.override})
		}
	}
	return unused
}

// stopOverrides stops the timers of all overrides, because the registry is closed, and returns the overrides. The caller
// holds r.mu.
func (r *Registry) stopOverrides() (ended []Override) {
	for res := range r.overridden {
		res.override.timer.Stop()
		ended = append(ended, res.override.Override)
	}
	clear(r.overridden)
	return sortOverrides(ended)
}

func sortOverrides(all []Override) []Override {
	slices.SortFunc(all, func(a, b Override) int { return strings.Compare(a.Limiter, b.Limiter) })
	return all
}

// reportKeptOverrides reports the overrides of the limiters that the versions use.
func (r *Registry) reportKeptOverrides(ctx context.Context, versions []*version) {
	var kept []Override
	seen := map[*resource]bool{}
	r.mu.Lock()
	for _, v := range versions {
		for _, u := range v.uses {
			if o := u.overridden(); o != nil && !seen[u.resource] {
				seen[u.resource] = true
				kept = append(kept, *o)
			}
		}
	}
	r.mu.Unlock()
	for _, o := range sortOverrides(kept) {
		r.reportOverride(ctx, EventOverrideKept, pipeline.SeverityWarning, o, nil)
	}
}

// overridden returns a copy of the override of the limiter, or nil if there is none. The caller holds r.mu.
func (res *resource) overridden() *Override {
	switch {
	case res.override != nil:
		o := res.override.Override
		return &o
	case res.inStore != nil:
		return res.overriddenInStore()
	}
	return nil
}
