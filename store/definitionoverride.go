package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// An override is why the limits of a definition are not the configured ones. It is stored with the definition, so that
// every instance that knows the definition can end it, and an instance that starts later does not end it too early.
// Times are in µs of the store's clock since 1970.
//
// A definition has an override only if both its limits and the configured ones are of the same kind.
type override struct {
	Configured rate.Schedule      `json:"configured"` // the limits after the end
	QueueLimit int                `json:"queue_limit,omitempty"`
	QueueOrder limiter.QueueOrder `json:"queue_order"`
	Since      int64              `json:"since"`
	Until      int64              `json:"until"`
	By         string             `json:"by"`
	Reason     string             `json:"reason"`

	limits   rate.Schedule // those of the definition
	queueing queueing      // QueueLimit and QueueOrder
}

// overrideIn returns the override in d, or nil if there is none. d can be nil.
func overrideIn(d *backend.Definition) *override {
	if d == nil || d.Override == "" {
		return nil
	}
	o := &override{}
	if json.Unmarshal([]byte(d.Override), o) != nil {
		return nil
	}
	o.limits, o.queueing = d.Limits(), queueing{o.QueueLimit, o.QueueOrder}
	return o
}

// over reports whether the override has ended at the moment now of the store's clock. o can be nil.
func (o *override) over(now int64) bool { return o != nil && now >= o.Until }

// text returns what overrideIn reads.
func (o *override) text(configured rate.Schedule) string {
	stored := *o
	stored.Configured = configured
	text, _ := json.Marshal(stored) // cannot fail: there are only numbers and strings
	return string(text)
}

// same reports whether both are the same override, perhaps with other configured limits.
func (o *override) same(other *override) bool {
	if o == nil || other == nil {
		return o == other
	}
	a, b := *o, *other
	a.Configured, b.Configured = rate.Schedule{}, rate.Schedule{}
	return a == b
}

// configured returns d as it would be without an override.
func configured(d *backend.Definition) *backend.Definition {
	o := overrideIn(d)
	if o == nil {
		return d
	}
	base := *d
	base.Schedule, base.Override = o.Configured, ""
	base.Anchor = d.Anchor
	return &base
}

// successor returns the definition that follows known when wanted are the configured limits and over is the override, or
// known itself if nothing changes. An override that has ended, or that is of another kind than the wanted limits, is
// dropped. A change of the override is a new version: else two instances that change it at once would both succeed.
func successor(known *backend.Definition, wanted rate.Schedule, origin backend.Origin, over *override, seen, now int64) *backend.Definition {
	limits, text := wanted, ""
	if over != nil && !over.over(now) && over.limits.Kind == wanted.Kind {
		limits, text = over.limits, over.text(wanted)
	}
	switch {
	case known.Limits() != limits || known.Override != text || known.Version < seen:
		next := known.WithLimits(limits, now)
		next.Version = max(next.Version, seen+1)
		next.Origin, next.Override = origin, text
		return next
	case known.Origin != origin: // the limits stay, and with them the version
		renewed := *known
		renewed.Origin = origin
		return &renewed
	}
	return known
}

// checkOverrideChange returns why ch cannot override the limits of found, or end their override. found is nil if the
// store has no definition.
func (c *core) checkOverrideChange(found *backend.Definition, ch *definitionChange, now int64) error {
	switch ch.why {
	case forOverride:
		if found != nil && c.mismatches(found) {
			return c.kindMismatch(found)
		}
		if o := ch.override; found != nil && configured(found).Kind != o.limits.Kind {
			return fmt.Errorf("store: limiter %q is a %v in the store, so its limits cannot be those of a %v", c.name, configured(found).Kind, o.limits.Kind)
		}
		if ch.override.over(now) {
			var p validate.Problems
			p.Add("Until", time.UnixMicro(ch.override.Until).Format(time.RFC3339Nano), "must be in the future by the store's clock, which shows %s",
				time.UnixMicro(now).Format(time.RFC3339Nano))
			return p.Err("store")
		}
		ch.override.Since = now
	case forOverrideEnd:
		in := c.inForce.Load()
		if overrideIn(found) == nil && (in == nil || in.override == nil) {
			return fmt.Errorf("%w: %q", ErrNotOverridden, c.name)
		}
	}
	return nil
}

// Why an override has ended.
const (
	endedByTime    = "its time is over"
	endedElsewhere = "ended, or replaced, at another instance"
)

// ErrNotOverridden means that the limits of the limiter are not overridden, for example because the override has ended
// already.
var ErrNotOverridden = errors.New("store: the limiter is not overridden")

// overrideCheck is the longest time between two looks at the store's clock, which can step.
const overrideCheck = time.Minute

// watchOverride sets the timer that ends the override in force.
func (c *core) watchOverride() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.overrideTimer != nil {
		c.overrideTimer.Stop()
		c.overrideTimer = nil
	}
	if in := c.inForce.Load(); in.override != nil && !c.closed.Load() {
		c.overrideTimer = time.AfterFunc(min(time.Until(in.ends), overrideCheck), func() { c.s.calls.Go(c.checkOverride) })
	}
}

// checkOverride ends the override if its time is over. Every instance that knows the override does so; one of them is the
// first.
func (c *core) checkOverride() {
	for !c.closed.Load() && c.checkOverrideOnce() != nil {
		if !c.s.calls.Sleep(c.s.o.ProbeInterval) {
			return
		}
	}
}

func (c *core) checkOverrideOnce() error {
	defer c.lockDefinition()()
	if in := c.inForce.Load(); in.override == nil {
		return nil
	}
	if err := c.s.calls.Check(c.name, ""); err != nil {
		return err
	}
	return c.define(c.restoring())
}

// limitsWithoutStore returns the limits by which this instance decides without the store. An override that is over by
// then is not in force, although the store does not know it yet.
func (c *core) limitsWithoutStore() rate.Schedule {
	if in := c.inForce.Load(); in != nil && in.override != nil && !time.Now().Before(in.ends) {
		return in.override.Configured
	}
	return c.limits()
}

// An overrideEvent is the beginning or, if ended is not empty, the end of an override.
type overrideEvent struct {
	override *override
	ended    string // why it has ended
}

// reportOverrides reports the override that next has and old, which can be nil, has not, and the other way round. now is
// the store's time, and why says why an override has ended before its time.
func (c *core) reportOverrides(old, next *loadedDefinition, now int64, why string) {
	watch := c.overrideEvents.Load()
	if watch == nil {
		return
	}
	var was *override
	if old != nil {
		was = old.override
	}
	if was.same(next.override) {
		return
	}
	if was != nil {
		if was.over(now) {
			why = endedByTime
		}
		watch.Add(overrideEvent{was, why})
	}
	if next.override != nil {
		watch.Add(overrideEvent{override: next.override})
	}
}

// overrideLimits is Override.
func (c *core) overrideLimits(o Override) error {
	until, by, reason := o.Until, o.By, o.Reason
	var p validate.Problems
	limits, q := c.splitSameKind(&p, o.Options)
	p.Text("By", by, maxOverrideBy)
	p.Text("Reason", reason, maxOverrideReason)
	switch {
	case until.IsZero():
		p.Add("Until", nil, "must be set")
	case time.Until(until) > time.Duration(backend.MaxPeriod)*time.Microsecond:
		p.Add("Until", until.Format(time.RFC3339Nano), "must be at most 100 years away")
	}
	if err := p.Err("store"); err != nil {
		return err
	}
	return c.changeOverride(definitionChange{why: forOverride, ended: "replaced by " + by, override: &override{
		QueueLimit: q.limit, QueueOrder: q.order, Until: until.UnixMicro(), By: by, Reason: reason, limits: limits,
	}})
}

// endOverride is EndOverride.
func (c *core) endOverride(by string) error {
	var p validate.Problems
	p.Text("by", by, maxOverrideBy)
	if err := p.Err("store"); err != nil {
		return err
	}
	return c.changeOverride(definitionChange{why: forOverrideEnd, ended: "ended by " + by})
}

func (c *core) changeOverride(ch definitionChange) error {
	if c.closed.Load() {
		return limiter.ErrClosed
	}
	unlock, err := c.lockDefinitionInTime()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.s.calls.Check(c.name, ""); err != nil {
		return calls.Unavailable(err)
	}
	// The limits of this program come first: what it overrides are the limits that it has set, or that have overruled it.
	if err := c.defineFirstLocked(); err != nil {
		return err
	}
	if err := c.define(ch); err != nil {
		return err
	}
	c.convertNow()
	return nil
}
