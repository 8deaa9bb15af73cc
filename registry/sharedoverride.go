package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/store"
)

// overriddenInStore returns the override of a limiter in a store, as far as this instance knows, or nil.
func (res *resource) overriddenInStore() *Override {
	o, ok := res.inStore.Overridden()
	if !ok {
		return nil
	}
	of := overrideOf(res.id.name, o)
	return &of
}

func overrideOf(name string, o store.Override) Override {
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
	res.inStore.OnOverride(nil)
	r.mu.Lock()
	o, closed := res.overriddenInStore(), r.closed
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
