package definition

import (
	"encoding/json"
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
	at       time.Time   // when the limiter was made, or Reconfigure was called
	number   int64       // larger with each change of the process
	override Override    // overrideOn
	by       string      // overrideEnds
}

var changes atomic.Int64

// called returns a change that is called now.
func (ch change) called() *change {
	ch.at, ch.number = time.Now(), changes.Add(1)
	return &ch
}

// Terms are what a definition says about its limits, in JSON.
type terms struct {
	Configured rate.Schedule `json:"configured"` // in force unless they are overridden
	Override   Override      `json:"override,omitzero"`
	// Generation and Made are those of the limiter whose first use has set the configured limits, or of the Reconfigure that has.
	// Made is in µs of the store's clock since 1970.
	Generation int64 `json:"generation,omitempty"`
	Made       int64 `json:"made"`
	// Past has digests of the limits that were replaced, the newest first. A first use does not set those limits again.
	Past string `json:"past,omitempty"`
}

func termsOf(d *backend.Definition) (t terms) {
	if json.Unmarshal([]byte(d.Terms), &t) != nil {
		t = terms{}
	}
	if t.Override.None() {
		t.Configured = d.Limits()
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
	older      int64               // limits that were made until then were set before this change was called
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
		if err = f.checkOverride(&ch.override, t.Configured.Kind); err == nil {
			t.Override = ch.override
			t.Override.Since = f.now
		}
	case overrideEnds:
		if t.Override.None() {
			err = fmt.Errorf("%w: %q", ErrNotOverridden, f.name)
		}
		t.Override = Override{}
	default:
		t, refused = f.set(ch, t)
	}
	if (t.Configured.Kind == rate.Concurrency) != (f.made.Kind == rate.Concurrency) {
		return nil, nil, fmt.Errorf("limiter %q is a %v here and a %v in the store: one of the two needs another name", f.name, f.made.Kind, t.Configured.Kind)
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
	case f.found == nil || f.found.Version < f.inForce.Version:
		return f.inForce, termsOf(f.inForce)
	}
	t, lost := termsOf(f.found), termsOf(f.inForce)
	if t.Configured == lost.Configured || t.replaced(lost.Configured) || lost.refusal(&t) == nil {
		return f.found, t
	}
	lost.remember(t.Configured)
	if lost.Override.None() || lost.Override.over(f.now) {
		lost.Override = t.Override
	}
	return f.found, lost
}

// set returns the terms with which the limits of ch replace those of t, or t and why they must not.
func (f *facts) set(ch *change, t terms) (_ terms, refused error) {
	w := t
	w.Configured, w.Generation, w.Made = ch.limits.Schedule(unit), f.generation, f.now-max(f.asked.Sub(ch.at), 0).Microseconds()
	if ch.why == firstUse {
		refused = t.refusal(&w)
	} else {
		if ch.why == setLater && w.Made < t.Made && t.Made > f.older {
			refused = errors.New("newer limits were set after ReconfigureLater was called")
		}
		w.Generation = max(f.generation, t.Generation) // an older program must not lower it
	}
	same := w.Configured == t.Configured
	switch {
	case same && (refused != nil || ch.why == firstUse && w.Generation == t.Generation):
		return t, nil //nolint:nilerr // what is refused is in force
	case refused != nil:
		return t, fmt.Errorf("limits of %+v are in force, not %+v: %w", t.Configured, w.Configured, refused)
	}
	if ch.why != firstUse && (!same || !w.replaced(f.made)) {
		w.remember(f.made) // they count as replaced even if they never were in force
	}
	w.remember(t.Configured)
	return w, nil
}

// refusal returns why a first use must not set the limits of w in place of t, or nil: a program that starts late would bring
// back limits that were changed since it was made.
func (t *terms) refusal(w *terms) error {
	switch {
	case w.Generation > t.Generation:
		return nil
	case w.Generation < t.Generation:
		return fmt.Errorf("generation %d is in force, and this limiter is of generation %d", t.Generation, w.Generation)
	case t.replaced(w.Configured):
		return errors.New("newer limits have replaced the limits of this limiter")
	case w.Made < t.Made:
		return errors.New("newer limits were set after this limiter was made")
	}
	return nil
}

// define returns a definition of t that follows last, or last itself if it says the same. An override that is over, or of
// another kind than the configured limits, ends. A definition that differs has a new version: else two instances that change it
// at once would both succeed, and the older program's limits could stay. Only a later Made keeps the version, to which all keys
// would be converted: each instance that reloads the same file changes it. A version is newer than every one seen, even if the
// store's clock has stepped back.
func (f *facts) define(last *backend.Definition, t *terms) *backend.Definition {
	limits := t.Configured
	if o := &t.Override; o.over(f.now) || o.Limits.Kind != limits.Kind {
		*o = Override{}
	} else {
		limits = o.Limits.Schedule(unit)
	}
	text, _ := json.Marshal(t) // cannot fail: there are only numbers and texts
	if last == nil {
		next := backend.NewDefinition(f.name, limits, f.now)
		next.Version, next.Terms = max(f.now, f.seen+1), string(text)
		return next
	}
	was := termsOf(last)
	made := was.Made
	was.Made = t.Made
	var next *backend.Definition
	switch {
	case last.Limits() != limits || was != *t || last.Version < f.seen:
		next = last.WithLimits(limits, f.now)
		next.Version = max(next.Version, f.seen+1)
	case made != t.Made:
		next = new(*last)
	default:
		return last
	}
	next.Terms = string(text)
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

// remember puts the digest of limits that t replaces first in Past.
func (t *terms) remember(replaced rate.Schedule) {
	if replaced == t.Configured || replaced.Kind == 0 {
		return
	}
	all := []string{digest(replaced)}
	for d := range strings.FieldsSeq(t.Past) {
		if d != all[0] && len(all) < maxPast {
			all = append(all, d)
		}
	}
	t.Past = strings.Join(all, " ")
}

// replaced reports whether l is among the limits that were replaced.
func (t *terms) replaced(l rate.Schedule) bool { return strings.Contains(t.Past, digest(l)) }

// digest returns a hash of l in 8 characters. Two different limits have the same digest with a probability of 2^-32.
func digest(l rate.Schedule) string {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, l)
	return fmt.Sprintf("%08x", h.Sum32())
}

// An Override is why limits in force are not the configured ones; the zero Override is none. It is stored with the
// definition, so that every instance that knows the definition can end it, and an instance that starts later does not end
// it too early. Times are in µs of the store's clock since 1970.
type Override struct {
	Limits rate.Limits `json:"limits"` // with their queue
	Since  int64       `json:"since"`
	Until  int64       `json:"until"`
	By     string      `json:"by"`
	Reason string      `json:"reason"`
}

// ErrNotOverridden is the error of EndOverride if there is nothing to end.
var ErrNotOverridden = errors.New("store: the limiter is not overridden")

// None reports whether there is no override.
func (o *Override) None() bool { return o.Until == 0 }

// over reports whether the override has ended at the moment now of the store's clock.
func (o *Override) over(now int64) bool { return now >= o.Until }

// unit is that of schedules and times in a store.
const unit = time.Microsecond
