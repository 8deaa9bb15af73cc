package registry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-go/weir/internal/goroutine"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
)

// An Override replaces the limits of a limiter for a while. See [Registry.Override].
type Override struct {
	// Limiter is the name of a limiter that a version in force uses, as [Registry.Limiters] yields it.
	Limiter string
	// Options are the limits, such as a [limiter.TokenBucketOptions] for a token bucket. For a partitioned limiter they
	// are those of each key. All fields count: with a QueueLimit of 0 the limiter has no queue until the end.
	// They must be of the limiter's kind, and ManualReplenishment that of the limiter.
	Options limiter.Options
	// Until is the end, at which the limiter gets the limits back that the configuration wants by then. It must be in the
	// future, and at most 100 years away.
	Until time.Time
	// By is who overrides the limits, and Reason is why. Both must be set. They have at most 256 and 1024 bytes.
	By, Reason string

	// Since is when the override came into force. The registry sets it.
	Since time.Time
	// Ended is, in an [EventOverrideEnded], why the override has ended, such as "its time is over" or "ended by alice".
	// The registry sets it.
	Ended string
}

// The bounds of the texts of an Override, in bytes. They are in log lines and, for limiters in a store, in the store.
const (
	maxOverrideBy     = 256
	maxOverrideReason = 1024
)

const maxOverrideTime = 100 * 365 * 24 * time.Hour

// Why an override has ended.
const (
	endedByTime  = "its time is over"
	endedRemoved = "no pipeline in force uses the limiter"
	endedClosed  = "the registry was closed"
	endedHere    = "this registry does not use the limiter any more" // it is in a store
)

// EventAttributes returns what package telemetry shows of o in log lines and span events.
func (o Override) EventAttributes() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("limiter.name", o.Limiter),
		slog.String("override.by", o.By),
		slog.String("override.reason", o.Reason),
		slog.String("override.until", o.Until.Format(time.RFC3339)),
		slog.String("override.options", fmt.Sprintf("%+v", limiter.OptionsOf(rate.Of(o.Options)))),
	}
	if o.Ended != "" {
		attrs = append(attrs, slog.String("override.ended", o.Ended))
	}
	return attrs
}

// validate checks everything but the Options, which depend on the limiter.
func (o *Override) validate() error {
	var p validate.Problems
	if o.Limiter == "" {
		p.Add("Limiter", nil, "must be set")
	}
	if o.Options == nil {
		p.Add("Options", nil, "must be set")
	}
	switch left := time.Until(o.Until); {
	case o.Until.IsZero():
		p.Add("Until", nil, "must be set")
	case left <= 0:
		p.Add("Until", o.Until.Format(time.RFC3339Nano), "must be in the future")
	case left > maxOverrideTime:
		p.Add("Until", o.Until.Format(time.RFC3339Nano), "must be at most 100 years away")
	}
	p.Text("By", o.By, maxOverrideBy)
	p.Text("Reason", o.Reason, maxOverrideReason)
	return p.Err("registry")
}

// Override replaces the limits of a limiter until o.Until. What the limiter has counted and granted stays, and no permit
// is granted twice: it is changed in place, as by a reload. An earlier override of the limiter ends.
//
// A reload keeps the override. If it changes the options of the limiter, they come into force at the end of the
// override; until then [LimiterInfo.Configured] has them, and the reload reports [EventOverrideKept]. The override also
// ends if no version in force uses the limiter any more, because a reload has removed it or changed its kind, and when
// the registry is closed.
//
// The limits of a limiter in a store are overridden for all instances, and o.Until is a time of the store's clock. The
// override ends in time even if this instance does not run any more; it does not end because this registry removes the
// limiter or is closed. Override waits for the store, at most fifteen times [store.Options.CallTimeout], even if ctx ends
// before; see [store.Limiter.Override].
//
// The start is reported as [EventOverridden] and the end as [EventOverrideEnded], those of a limiter in a store by the
// registry of every instance that uses it. If the clock steps, the end can be up to a minute late.
//
// The error is a [weir.OptionsError] that names the field, [ErrNoLimiter], [ErrClosed], that of ctx, [store.ErrUnavailable],
// or [ErrReloading] if a function of the program that reconfigures something together with the limiter does not return.
// After an error nothing has changed.
func (r *Registry) Override(ctx context.Context, o Override) error {
	if err := o.validate(); err != nil {
		return err
	}
	o.Until, o.Ended = o.Until.Round(0), "" // without a monotonic reading: Until is a time of the wall clock
	l, err := r.lockLimiter(ctx, goroutine.ID(), func() (*resource, error) {
		res, err := r.limiterInForce(o.Limiter)
		if err != nil {
			return nil, err
		}
		var p validate.Problems
		res.checkOverride(&p, o.Options)
		return res, p.Err("registry")
	})
	if err != nil {
		return err
	}
	if l.inStore != nil {
		return explainStoreError("overriding", l.resource, l.inStore.Override(store.Override{Options: o.Options, Until: o.Until, By: o.By, Reason: o.Reason}))
	}
	defer r.endUnusedOverrides(ctx) // a change can have removed the limiter meanwhile
	o.Options = limiter.OptionsOf(o.Options.Limits())
	began := &override{Override: o}
	old, err := l.change(began)
	if err != nil {
		return err
	}
	if old != nil {
		r.reportOverrideEnded(ctx, old.Override, "replaced by "+o.By, nil)
	}
	r.reportOverride(ctx, EventOverridden, pipeline.SeverityWarning, began.Override, nil)
	return nil
}

// EndOverride ends the override of that limiter before its time. by is who ends it, and must be set. The error is a
// [weir.OptionsError], [ErrNoLimiter], [ErrNotOverridden], or another one of [Registry.Override].
func (r *Registry) EndOverride(ctx context.Context, name, by string) error {
	var p validate.Problems
	p.Text("by", by, maxOverrideBy)
	if err := p.Err("registry"); err != nil {
		return err
	}
	l, err := r.lockLimiter(ctx, goroutine.ID(), func() (*resource, error) {
		res, err := r.limiterInForce(name)
		if err == nil && res.override == nil && res.inStore == nil {
			err = fmt.Errorf("%w: %q", ErrNotOverridden, name)
		}
		return res, err
	})
	switch {
	case err != nil:
		return err
	case l.inStore != nil:
		return explainStoreError("ending the override of", l.resource, l.inStore.EndOverride(by))
	}
	return l.end(ctx, "ended by "+by)
}

// limiterInForce returns the limiter of that name which versions in force use. The caller holds r.mu.
func (r *Registry) limiterInForce(name string) (*resource, error) {
	if r.closed {
		return nil, ErrClosed
	}
	for _, d := range r.definitions {
		for _, i := range d.instances {
			if i.current == nil {
				continue
			}
			if u := i.current.uses[resourceKey{name: name}]; u != nil {
				return u.resource, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrNoLimiter, name)
}

func (r *Registry) reportOverrideEnded(ctx context.Context, o Override, why string, err error) {
	o.Ended = why
	r.reportOverride(ctx, EventOverrideEnded, pipeline.SeverityInformation, o, err)
}

// reportOverride reports an event about a limiter, which can belong to several pipelines.
func (r *Registry) reportOverride(ctx context.Context, name string, severity pipeline.Severity, o Override, err error) {
	r.reportFrom(ctx, pipeline.Source{Strategy: o.Limiter}, pipeline.Event{Name: name, Severity: severity, Result: o, Err: err})
}
