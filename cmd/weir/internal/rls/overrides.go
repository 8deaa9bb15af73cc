package rls

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/registry"
)

// overrides have the limits that replace those of the file for a while. They are a listener of the registry, and look at
// it when it reports a change, so that a request costs one atomic load.
type overrides struct {
	registry *registry.Registry
	byName   atomic.Pointer[map[string]rate.Limits] // the limits, by the name of the limiter; nil: none is overridden

	looking sync.Mutex // so that the last look is that after the last change
}

// limits returns the limits that an override has given the limiter of that name; zero if there is none.
func (o *overrides) limits(name string) (l rate.Limits) {
	if all := o.byName.Load(); all != nil {
		l = (*all)[name]
	}
	return l
}

// Hooks implements [pipeline.Listener]. The requests are of no interest.
func (o *overrides) Hooks() pipeline.Hooks { return pipeline.Hooks{OnEvent: o.onEvent, Rare: true} }

// onEvent looks at the limiters after a change.
func (o *overrides) onEvent(_ context.Context, e pipeline.Event) {
	switch e.Name {
	case registry.EventOverridden, registry.EventOverrideEnded, registry.EventReload:
	default:
		return
	}
	o.looking.Lock()
	defer o.looking.Unlock()
	var all map[string]rate.Limits
	for name, info := range o.registry.Limiters() {
		if info.Override == nil {
			continue
		}
		if all == nil {
			all = make(map[string]rate.Limits)
		}
		all[name] = info.Options.Limits
	}
	if all == nil {
		o.byName.Store(nil)
	} else {
		o.byName.Store(&all)
	}
}
