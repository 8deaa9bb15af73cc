package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
)

// sharedOverrides is what the registry needs of a limiter in a store to override its limits. The store keeps the override,
// for all instances.
type sharedOverrides interface {
	override(o Override) error
	endOverride(by string) error
	overridden() *Override // nil: there is none, as far as this instance knows
	ignoreOverrides()      // reports no start and no end any more
}

// sharedLimits are the limits of a limiter in a store.
type sharedLimits[O LimiterOptions] struct {
	name    string
	how     store.LimiterOptions
	limiter storeLimiter[O]
}

func (l sharedLimits[O]) check(p *validate.Problems, path string, _, limits any) {
	to, ok := limits.(O)
	if !ok {
		p.Add(path, nil, "must be a %T, got a %T", to, limits)
		return
	}
	p.Include(path, store.Check(l.name, to, &l.how))
}

func (l sharedLimits[O]) with(options, limits any) any {
	o := options.(SharedOptions[O])
	o.Limits = limits.(O)
	return o
}

func (l sharedLimits[O]) override(o Override) error {
	return l.limiter.Override(store.Override[O]{Options: o.Options.(O), Until: o.Until, By: o.By, Reason: o.Reason})
}

func (l sharedLimits[O]) endOverride(by string) error { return l.limiter.EndOverride(by) }

func (l sharedLimits[O]) overridden() *Override {
	o, ok := l.limiter.Overridden()
	if !ok {
		return nil
	}
	of := overrideOf(l.name, o)
	return &of
}

func (l sharedLimits[O]) ignoreOverrides() { l.limiter.OnOverride(nil) }

func overrideOf[O LimiterOptions](name string, o store.Override[O]) Override {
	return Override{Limiter: name, Options: o.Options, Until: o.Until, By: o.By, Reason: o.Reason, Since: o.Since, Ended: o.Ended}
}

// reportInStore reports the start or the end of an override that any instance has made.
func (r *Registry) reportInStore(o Override) {
	name, severity := EventOverridden, pipeline.SeverityWarning
	if o.Ended != "" {
		name, severity = EventOverrideEnded, pipeline.SeverityInformation
	}
	r.reportOverride(context.Background(), name, severity, o, nil)
}

// leaveInStore reports, before a limiter is closed, that its override has ended for this registry.
func (r *Registry) leaveInStore(res *resource) {
	if res.inStore == nil {
		return
	}
	res.inStore.ignoreOverrides()
	r.mu.Lock()
	o, closed := res.inStore.overridden(), r.closed
	r.mu.Unlock()
	if o != nil && !closed {
		r.reportOverrideEnded(context.Background(), *o, endedHere, nil)
	}
}

// explainStoreError returns err, which a limiter in a store has returned, as an error of the registry.
func explainStoreError(doing string, res *resource, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotOverridden):
		return fmt.Errorf("%w: %q", ErrNotOverridden, res.id.name)
	case errors.Is(err, limiter.ErrClosed): // meanwhile
		return fmt.Errorf("%w: %q", ErrNoLimiter, res.id.name)
	}
	return fmt.Errorf("registry: %s %v: %w", doing, res.id, err)
}
