package definition

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A reason is why limits are to come into force.
type reason uint8

const (
	agree        reason = iota // nothing is wanted but that this instance and the store agree
	firstUse                   // of the constructor's limits
	setLater                   // by ReconfigureLater
	set                        // by Reconfigure
	overrideOn                 // by Override
	overrideEnds               // by EndOverride
)

// A change is what an instance wants to come into force.
type change struct {
	why      reason
	limits   rate.Limits // firstUse, setLater, set
	stamp    stamp       // of the same reasons: when the limiter was made or reconfigured
	override *Override   // overrideOn
	by       string      // overrideEnds: who ends it
}

// A stamp is a moment at which a limiter was made or reconfigured.
type stamp struct {
	at time.Time
	by string // unique among all processes; of the stamps of one process, later ones are larger
}

var (
	process = rand.Text() + "-"
	serial  atomic.Int64
)

func newStamp() stamp { return stamp{time.Now(), fmt.Sprintf("%s%016x", process, serial.Add(1))} }

// later reports whether a is not earlier than b. If both are of one process, their order in it decides, else the store's
// clock.
func later(a, b backend.Origin) bool {
	if of, _, ok := strings.Cut(a.By, "-"); ok && strings.HasPrefix(b.By, of+"-") {
		return a.By >= b.By
	}
	return a.Made >= b.Made
}

// Terms are what a definition says without its schedule in force.
type terms struct {
	limits   rate.Schedule // the configured ones, which an override leaves as they are
	origin   backend.Origin
	override *Override // nil: there is none
}

func termsOf(d *backend.Definition) terms {
	t := terms{d.Limits(), d.Origin, overrideIn(d)}
	if t.override != nil {
		t.limits = t.override.Configured.Schedule(time.Microsecond)
	}
	return t
}

// Facts are what is known when the next definition is chosen.
type facts struct {
	name       string
	made       rate.Schedule // the constructor's limits
	generation int64
	inForce    *backend.Definition // here; nil: not known yet
	found      *backend.Definition // in the store; nil: there is none
	seen       int64               // the largest version that a key's state had
	asked      time.Time           // just before the store was asked
	now        int64               // the store's time
}

// next returns the definition that is to be in force, with what ch wants if that may come into force. It is found itself if
// nothing changes, and nil if the limiter is of another kind in the store. refused is why the limits of ch stay out of
// force; err is why ch is impossible.
func (f *facts) next(ch *change) (next *backend.Definition, refused, err error) {
	last, t := f.latest()
	switch ch.why {
	case agree:
	case overrideOn:
		if err = f.checkOverride(ch.override, t.limits.Kind); err == nil {
			began := *ch.override
			began.Since, t.override = f.now, &began
		}
	case overrideEnds:
		if t.override == nil {
			err = fmt.Errorf("%w: %q", ErrNotOverridden, f.name)
		}
		t.override = nil
	default:
		wanted := f.wanted(ch, &t)
		same := t.limits == wanted.limits
		refused = t.refusal(&wanted, ch.why)
		switch {
		case same && (refused != nil || ch.why == firstUse && f.generation == t.origin.Generation):
			refused = nil
		case refused == nil:
			t = wanted
		}
	}
	if (t.limits.Kind == rate.Concurrency) != (f.made.Kind == rate.Concurrency) {
		return nil, nil, fmt.Errorf("limiter %q is a %v here and a %v in the store: one of the two needs another name", f.name, f.made.Kind, t.limits.Kind)
	}
	if refused != nil {
		refused = fmt.Errorf("limits of %+v are in force, not %+v: %w", t.limits, ch.limits.Schedule(time.Microsecond), refused)
	}
	return f.define(last, &t), refused, err
}

// latest returns the definition that the next one follows, nil if none is known, and the terms in force. These are what this
// instance knows, not what the store has, if the store has lost them: then a definition can be there that an older program has
// set, which they would have prevented.
func (f *facts) latest() (last *backend.Definition, t terms) {
	switch {
	case f.inForce == nil && f.found == nil:
		return nil, t
	case f.inForce == nil:
		return f.found, termsOf(f.found)
	}
	was := termsOf(f.inForce)
	if f.found == nil || f.found.Version < f.inForce.Version {
		return f.inForce, was
	}
	if t = termsOf(f.found); t.follows(&was) {
		return f.found, t
	}
	was.origin.Past = withDigest(was.origin.Past, t.limits)
	if was.override == nil || was.override.over(f.now) {
		was.override = t.override
	}
	return f.found, was
}

// wanted returns the terms that ch sets in place of t.
func (f *facts) wanted(ch *change, t *terms) terms {
	w := terms{ch.limits.Schedule(time.Microsecond), t.origin, t.override}
	o := &w.origin
	o.Explicit, o.Made, o.By = ch.why != firstUse, f.now-f.asked.Sub(ch.stamp.at).Microseconds(), ch.stamp.by
	if !o.Explicit {
		o.Generation = f.generation
	} else { // an older program must not lower the Generation that a newer one has set
		o.Generation = max(f.generation, t.origin.Generation)
		// The constructor's limits count as replaced even if they never were in force: a program that is started again must
		// not set them.
		if f.made != w.limits {
			o.Past = withDigest(o.Past, f.made)
		}
	}
	if t.limits.Kind != 0 && t.limits != w.limits {
		o.Past = withDigest(o.Past, t.limits)
	}
	return w
}

// refusal returns why the limits of w must not come into force in place of t, or nil: a program that starts late would bring
// back limits that were changed since it was made.
func (t *terms) refusal(w *terms, why reason) error {
	if why == set {
		return nil
	}
	isLater := later(w.origin, t.origin)
	switch g, in := w.origin.Generation, t.origin.Generation; {
	case why == setLater && isLater, g > in && why == firstUse:
		return nil
	case why == setLater:
		return errors.New("newer limits were set after ReconfigureLater was called")
	case g < in:
		return fmt.Errorf("generation %d is in force, and this limiter is of generation %d", in, g)
	case strings.Contains(t.origin.Past, digest(w.limits)):
		return errors.New("newer limits have replaced the limits of this limiter")
	case isLater:
		return nil
	case t.origin.Explicit:
		return errors.New("Reconfigure was called after this limiter was made")
	}
	return errors.New("a limiter that was made later has set its limits")
}

// follows reports whether t was, or could have been, set in place of old, which is older.
func (t *terms) follows(old *terms) bool {
	return t.origin.Explicit || t.limits == old.limits || strings.Contains(t.origin.Past, digest(old.limits)) || old.refusal(t, firstUse) == nil
}

// define returns a definition of t that follows last, or last itself if it says the same. An override that is over, or of
// another kind than the configured limits, ends. A definition whose limits or override differ has a new version: else two
// instances that change it at once would both succeed. It is newer than every version seen, even if the store's clock has
// stepped back.
func (f *facts) define(last *backend.Definition, t *terms) *backend.Definition {
	limits, text := t.limits, ""
	if o := t.override; o != nil && !o.over(f.now) && o.Limits.Kind == t.limits.Kind {
		limits, text = o.Limits.Schedule(time.Microsecond), o.text(t.limits)
	}
	var next *backend.Definition
	switch {
	case last == nil:
		next = backend.NewDefinition(f.name, limits, f.now)
	case last.Limits() != limits || last.Override != text || last.Version < f.seen:
		next = last.WithLimits(limits, f.now)
	case last.Origin != t.origin:
		renewed := *last
		renewed.Origin = t.origin
		return &renewed
	default:
		return last
	}
	next.Version = max(next.Version, f.seen+1)
	next.Origin, next.Override = t.origin, text
	return next
}

// checkOverride returns what is wrong with an override of configured limits of a kind.
func (f *facts) checkOverride(o *Override, configured rate.Kind) error {
	var p validate.Problems
	if configured != o.Limits.Kind {
		p.Add("Options", o.Limits.Kind.String(), "must be of the kind that the limiter has in the store, %v", configured)
	}
	if o.over(f.now) {
		p.Add("Until", time.UnixMicro(o.Until).Format(time.RFC3339Nano), "must be in the future by the store's clock, which shows %s",
			time.UnixMicro(f.now).Format(time.RFC3339Nano))
	}
	return p.Err("store")
}

// maxPast is how many replaced limits are remembered.
const maxPast = 16

// withDigest puts the digest of l first in past.
func withDigest(past string, l rate.Schedule) string {
	all := []string{digest(l)}
	for d := range strings.FieldsSeq(past) {
		if d != all[0] && len(all) < maxPast {
			all = append(all, d)
		}
	}
	return strings.Join(all, " ")
}

// digest returns a hash of l in 8 characters. Two different limits have the same digest with a probability of 2^-32.
func digest(l rate.Schedule) string {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, l.Kind, l.Permits, l.Period, l.Refill, l.Segments, l.Every, l.Zone)
	return fmt.Sprintf("%08x", h.Sum32())
}
