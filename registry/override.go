package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
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
	// They must be of the limiter's kind.
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
	endedRemoved = "no pipeline uses the limiter"
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
// override; until then [LimiterInfo.Configured] has them. The override also
// ends when the limiter is closed: when no version uses it any more, because a reload has removed it or changed its kind, or
// when the registry is closed.
//
// The limits of a limiter in a store are overridden for all instances, and o.Until is a time of the store's clock. The
// override ends in time even if this instance does not run any more; it does not end because this registry removes the
// limiter or is closed. Override waits for the store, at most fifteen times [store.Options.CallTimeout], even if ctx ends
// before; see [store.Limiter.Override].
//
// The start is reported as [EventOverridden] and the end as [EventOverrideEnded], those of a limiter in a store by the
// registry of every instance that uses it. If the clock steps, the end can be up to a minute late.
//
// The error is a [weir.OptionsError] that names the field, [ErrNoLimiter], [ErrClosed], that of ctx, or
// [store.ErrUnavailable]. After an error nothing has changed. While a reload changes the limiter, Override waits.
func (r *Registry) Override(ctx context.Context, o Override) error {
	if err := o.validate(); err != nil {
		return err
	}
	o.Until, o.Ended = o.Until.Round(0), "" // without a monotonic reading: Until is a time of the wall clock
	return r.resources.changeOverride(ctx, o.Limiter, o.By, &override{Override: o})
}

// EndOverride ends the override of that limiter before its time. by is who ends it, and must be set. The error is a
// [weir.OptionsError], [ErrNoLimiter], [ErrNotOverridden], or another one of [Registry.Override].
func (r *Registry) EndOverride(ctx context.Context, name, by string) error {
	var p validate.Problems
	p.Text("by", by, maxOverrideBy)
	if err := p.Err("registry"); err != nil {
		return err
	}
	return r.resources.changeOverride(ctx, name, by, nil)
}

// changeOverride puts an override of that limiter in force, or ends the one that is in force if to is nil.
func (r *resources) changeOverride(ctx context.Context, name, by string, to *override) error {
	if err := r.reconfiguring.take(ctx, nil); err != nil { // an override also ends after Close, for executions that drain
		return err
	}
	res, err := r.overridable(name, to)
	switch {
	case err == nil && res.inStore == nil && to == nil:
		return r.setOverride(ctx, res, nil, "ended by "+by)
	case err == nil && res.inStore == nil:
		to.Options = limiter.OptionsOf(to.Options.Limits())
		return r.setOverride(ctx, res, to, "replaced by "+by)
	}
	r.reconfiguring.leave() // changes of other limiters do not wait for the store
	switch {
	case err != nil:
		return err
	case to == nil:
		err = res.inStore.EndOverride(by)
	default:
		err = res.inStore.Override(store.Override{Options: to.Options, Until: to.Until, By: by, Reason: to.Reason})
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrNotOverridden):
		return fmt.Errorf("%w: %q", ErrNotOverridden, name)
	case errors.Is(err, limiter.ErrClosed): // meanwhile
		return r.gone(name)
	}
	return fmt.Errorf("registry: overriding %v: %w", res.id, err)
}

// overridable returns the limiter of that name if it can have the override to or, if to is nil, can have one that is to end.
func (r *resources) overridable(name string, to *override) (*resource, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := r.byName[resourceKey{name: name}]
	switch {
	case res == nil:
		return nil, r.gone(name)
	case to != nil:
		return res, res.checkOverride(to.Options)
	case res.override == nil && res.inStore == nil:
		return nil, fmt.Errorf("%w: %q", ErrNotOverridden, name)
	}
	return res, nil
}

// gone is the error of a limiter that no version in force uses.
func (r *resources) gone(name string) error {
	if ctxerr.Closed(r.closed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %q", ErrNoLimiter, name)
}

// checkOverride returns what is wrong with options that are to override the limits of the limiter.
func (res *resource) checkOverride(o limiter.Options) error {
	var p validate.Problems
	is, to := res.options.(LimiterConfig), rate.Of(o)
	switch {
	case to.Kind != is.Limits.Kind:
		p.Add("Options", nil, "must be a %T, got a %T", limiter.OptionsOf(is.Limits), limiter.OptionsOf(to))
	case res.inStore != nil:
		p.Include("Options", store.Check(res.id.name, to, &is.Shared))
	default:
		p.Include("Options", to.Validate())
	}
	return p.Err("registry")
}

// An override is an [Override] that is in force.
type override struct {
	Override

	timer *time.Timer // calls endInTime; guarded by the mutex of the registry
}

// overrideCheck is the longest time between two looks at the wall clock, which can step while a timer runs, and on some
// systems goes on while the machine sleeps and timers do not.
const overrideCheck = time.Minute

// next returns the time until the next look at the clock.
func (o *override) next() time.Duration { return min(time.Until(o.Until), overrideCheck) }

// effective returns the options that are in force when the versions want these, except for a limiter in a store.
func (o *override) effective(options any) any {
	if o == nil {
		return options
	}
	to := options.(LimiterConfig)
	to.Limits = o.Options.Limits()
	return to
}

// setOverride puts the override to of a limiter in force, or ends the one that is in force if to is nil, and reports both. why is
// why the one before ends. The caller has the turn, and setOverride gives it back.
func (r *resources) setOverride(ctx context.Context, res *resource, to *override, why string) error {
	defer r.reportOverrides(res)
	defer r.reconfiguring.leave()
	r.mu.Lock()
	old := res.override
	was, will := old.effective(res.options), to.effective(res.options)
	r.mu.Unlock()
	var err error
	if was != will {
		err = res.reconfigure(will)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case to != nil && (res.users == 0 || err != nil): // it was closed meanwhile
		return r.gone(res.id.name)
	case res.override != old: // the limiter was closed, which has ended its override
		return nil
	}
	if old != nil {
		old.timer.Stop()
		ended := old.Override
		ended.Ended = why
		r.addReport(ctx, res, ended, err)
	}
	if res.override = to; to != nil {
		to.Since = time.Now()
		to.timer = time.AfterFunc(to.next(), func() { r.endInTime(res, to) })
		r.addReport(ctx, res, to.Override, nil)
	}
	return err
}

// endInTime ends the override o if its time is over.
func (r *resources) endInTime(res *resource, o *override) {
	_ = r.reconfiguring.take(context.Background(), nil)
	r.mu.Lock()
	over, early := res.override != o, time.Until(o.Until) > 0
	if early && !over {
		o.timer.Reset(o.next())
	}
	r.mu.Unlock()
	if over || early {
		r.reconfiguring.leave()
		return
	}
	_ = r.setOverride(context.Background(), res, nil, endedByTime) // the error is reported
}

// leaveOverride ends the override of a limiter that is about to be closed. That of a limiter in a store ends for this registry.
func (r *resources) leaveOverride(res *resource) {
	why := endedRemoved
	if res.inStore != nil {
		res.inStore.OnOverride(nil)
		why = endedHere
	}
	r.mu.Lock()
	o, closed := res.overridden(), ctxerr.Closed(r.closed)
	if res.override != nil {
		res.override.timer.Stop()
		res.override = nil
	}
	if closed && res.inStore == nil {
		why = endedClosed
	}
	if o != nil && (!closed || res.inStore == nil) {
		o.Ended = why
		r.addReport(context.Background(), res, *o, nil)
	}
	r.mu.Unlock()
	r.reportOverrides(res)
}

// overridden returns a copy of the override of the limiter, or nil if there is none. That of a limiter in a store is the one
// that this instance knows of.
func (res *resource) overridden() *Override {
	switch {
	case res.override != nil:
		o := res.override.Override
		return &o
	case res.inStore != nil:
		if o, ok := res.inStore.Overridden(); ok {
			of := overrideInStore(res.id.name, o)
			return &of
		}
	}
	return nil
}

// addReport adds a report of the start or the end of an override, for reportOverrides. The caller holds mu.
func (r *resources) addReport(ctx context.Context, res *resource, o Override, err error) {
	res.reports = append(res.reports, func() { r.reportOverride(ctx, o, err) })
}

// reportOverrides makes the reports in the order in which they were added. If another caller makes one, reportOverrides does not wait,
// and that caller makes the others, too: a Listener can change overrides, and one that does not return holds up only its caller.
func (r *resources) reportOverrides(res *resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !res.reporting && len(res.reports) > 0 {
		report := res.reports[0]
		res.reports, res.reporting = res.reports[1:], true
		r.mu.Unlock()
		report()
		r.mu.Lock()
		res.reporting = false
	}
}

// reportOverride reports the start of an override, or its end if it has ended. The limiter can belong to several pipelines.
func (r *resources) reportOverride(ctx context.Context, o Override, err error) {
	e := pipeline.Event{Name: EventOverridden, Severity: pipeline.SeverityWarning, Result: o, Err: err}
	if o.Ended != "" {
		e.Name, e.Severity = EventOverrideEnded, pipeline.SeverityInformation
	}
	r.events.report(ctx, pipeline.Source{Strategy: o.Limiter}, e)
}

func overrideInStore(name string, o store.Override) Override {
	return Override{Limiter: name, Options: o.Options, Until: o.Until, By: o.By, Reason: o.Reason, Since: o.Since, Ended: o.Ended}
}
