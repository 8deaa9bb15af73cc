package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// inForce is a definition, and when to look whether it has changed.
type inForce struct {
	*backend.Definition
	due time.Time
}

func (c *core) from(d *backend.Definition) *inForce {
	every := float64(c.s.o.RefreshInterval) * (0.8 + 0.2*rand.Float64())
	return &inForce{Definition: d, due: time.Now().Add(time.Duration(every))}
}

// A finding is the first question for a limiter's definition. All callers who need the answer wait for it.
type finding struct {
	done chan struct{}
	err  error
}

// defined makes sure that a definition is in force, and asks the store for it the first time.
func (c *core) defined(ctx context.Context, limit *time.Timer) error {
	if c.inForce.Load() != nil {
		c.refreshIfDue(time.Now())
		return nil
	}
	f := c.find()
	if err := wait(ctx, limit, f.done); err != nil {
		return err
	}
	return f.err
}

func (c *core) find() *finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finding != nil {
		return c.finding
	}
	f := &finding{done: make(chan struct{})}
	c.finding = f
	go func() {
		f.err = c.first()
		c.mu.Lock()
		c.finding = nil
		c.mu.Unlock()
		close(f.done)
	}()
	return f
}

// alone waits until nobody else here is defining the limiter; the function that it returns lets
// the next begin. It is no mutex, because those who wait for one stop the time in
// testing/synctest.
func (c *core) alone() (done func()) {
	c.defining <- struct{}{}
	return func() { <-c.defining }
}

// longestDefine is how many times CallTimeout define may take: no try begins after two, and a try is two calls.
const longestDefine = 4

// aloneInTime is alone for a caller who waits. It returns an error if others are at it for so long.
func (c *core) aloneInTime() (done func(), err error) {
	limit := time.NewTimer(longestDefine * c.s.o.CallTimeout)
	defer limit.Stop()
	select {
	case c.defining <- struct{}{}:
		return func() { <-c.defining }, nil
	case <-limit.C:
		return nil, unavailable(errAllTheTime)
	}
}

// first sets the limits of the constructor, unless somebody was faster here.
func (c *core) first() error {
	defer c.alone()()
	if c.inForce.Load() != nil {
		return nil
	}
	if limits, by, telling := c.wants(); telling {
		return c.define(limits, later, by)
	}
	return c.define(c.limits(), firstUse, c.born)
}

// A reason is why limits are to be those in force.
type reason uint8

const (
	firstUse reason = iota // the constructor's are, where no newer ones are in force: see maySet
	again                  // they were in force, and the store may have forgotten them
	explicit               // Reconfigure has said so
	later                  // ReconfigureLater has said so, unless others were set since it was called
)

// define makes sure that the store has these limits for the name, or adopts those that overrule them. Other instances
// may do that at the same time with others. Here only one goroutine is at it: see alone. It takes longestDefine at the
// most. by is when the limiter was made or the call of Reconfigure or ReconfigureLater came; it is ignored for again.
func (c *core) define(wanted backend.Limits, why reason, by birth) error {
	tries := tries{since: time.Now()}
	for {
		found, now, err := c.load()
		if err != nil {
			return err
		}
		next := c.next(found, wanted, why, by, now)
		if next == found {
			if c.lends != (found.Kind == backend.KindConcurrency) {
				return c.otherKind(found)
			}
			c.adopt(found)
			if reason := c.whyNot(found, wanted, why, by, now); reason != nil {
				c.overruled(fmt.Errorf("limits of %+v are in force, not %+v: %w", found.Limits, wanted, reason))
			}
			return nil
		}
		old := int64(0)
		if found != nil {
			old = found.Version
		}
		p := c.s.partOf(c.name, "")
		begun := p.guard.now()
		did, err := bounded(c.s, func(ctx context.Context) (bool, error) { return c.s.backend.Define(ctx, old, next) })
		if p.guard.came(begun, err); err != nil {
			return unavailable(err)
		}
		if did {
			c.adopt(next)
			return nil
		}
		pause, ok := tries.next(2 * c.s.o.CallTimeout)
		if !ok || pause > 0 && !c.s.sleeps(pause) {
			return unavailable(errAllTheTime)
		}
	}
}

// next is what follows the definition that was found in the store, if there is one, and the
// one in force here, which the store may have lost. It is newer than all that was seen: the
// store's clock may have stepped back.
func (c *core) next(found *backend.Definition, wanted backend.Limits, why reason, by birth, now int64) *backend.Definition {
	known, seen := found, c.newest.Load()
	switch in := c.inForce.Load(); {
	case in == nil:
	case found == nil || found.Version < in.Version:
		known = in.Definition
	case why == again && follows(found, in.Definition):
		wanted = found.Limits
	case why == again:
		return restored(in.Definition, found, seen, now)
	}
	if known == nil {
		known = backend.NewDefinition(c.name, wanted, now)
		known.Origin = c.origin(nil, wanted, why, by, now)
		known.Version = max(known.Version, seen+1)
		return known
	}
	origin := known.Origin
	if c.whyNot(known, wanted, why, by, now) != nil {
		wanted = known.Limits
	} else if why != again && (known.Limits != wanted || c.renews(known, why, by, now)) {
		origin = c.origin(known, wanted, why, by, now)
	}
	switch {
	case known.Limits != wanted || known.Version < seen:
		known = known.WithLimits(wanted, now)
		known.Origin = origin
		known.Version = max(known.Version, seen+1)
	case known.Origin != origin: // the limits stay as they are, and with them the version
		renewed := *known
		renewed.Origin, known = origin, &renewed
	}
	return known // if it is found: as it is
}

// whyNot returns why other limits than those of d may not be set, or nil.
func (c *core) whyNot(d *backend.Definition, wanted backend.Limits, why reason, by birth, now int64) error {
	switch {
	case d.Limits == wanted:
		return nil
	case why == firstUse:
		return c.maySet(d, wanted, now)
	case why == later && !by.after(d, now+c.s.o.CallTimeout.Microseconds()): // the answer with now was on its way for so long
		return errors.New("they were set after ReconfigureLater was called")
	}
	return nil
}

// renews reports whether limits that are in force are set once more, which counts from now on.
func (c *core) renews(d *backend.Definition, why reason, by birth, now int64) bool {
	if why == firstUse {
		return c.o.Generation > d.Generation
	}
	return d.By != by.String() && (why == explicit && !d.Explicit || by.after(d, now))
}

func (c *core) load() (found *backend.Definition, now int64, err error) {
	type loaded struct {
		d   *backend.Definition
		now int64
	}
	p := c.s.partOf(c.name, "")
	begun := p.guard.now()
	got, err := bounded(c.s, func(ctx context.Context) (l loaded, err error) {
		l.d, l.now, err = c.s.backend.Load(ctx, c.name)
		return l, err
	})
	if p.guard.cameFromReading(begun, err); err != nil {
		return nil, 0, unavailable(err)
	}
	return got.d, got.now, nil
}

// adopt puts a definition in force here. An older one than is known changes nothing.
func (c *core) adopt(d *backend.Definition) {
	for {
		old := c.inForce.Load()
		if old != nil && old.Version > d.Version {
			return
		}
		if !c.inForce.CompareAndSwap(old, c.from(d)) {
			continue
		}
		if old == nil || old.Version != d.Version {
			c.s.listen()
			c.cells.reconfigured()
		}
		if old != nil && old.Version != d.Version {
			c.s.report(Event{Kind: EventReconfigured, Limiter: c.name})
		}
		return
	}
}

// refreshIfDue is called by whoever uses the limiter.
func (c *core) refreshIfDue(now time.Time) {
	in := c.inForce.Load()
	if in == nil || !now.After(in.due) || c.s.partOf(c.name, "").guard.err() != nil {
		return
	}
	if c.inForce.CompareAndSwap(in, c.from(in.Definition)) {
		c.refresh()
	}
}

// refreshSoon has the next who uses the limiter look, at some time within a second: all
// instances may have a reason at the same moment.
func (c *core) refreshSoon() {
	if in := c.inForce.Load(); in != nil {
		soon := &inForce{Definition: in.Definition, due: time.Now().Add(time.Duration(rand.Int64N(int64(time.Second))))}
		c.inForce.CompareAndSwap(in, soon)
	}
}

// The states of refreshing. What has changed after a refresh has begun, that refresh may not see.
const (
	noRefresh    int32 = iota
	oneRefresh         // is under way
	twoRefreshes       // one is under way, and another one follows it
)

// refresh looks in the background whether the definition has changed. However often it is called, one refresh is under
// way at a time, and one more follows for all calls that came meanwhile.
func (c *core) refresh() {
	if c.s.partOf(c.name, "").guard.err() != nil {
		return
	}
	if c.refreshing.Swap(twoRefreshes) == noRefresh {
		c.refreshing.Store(oneRefresh) // it begins after this, also for calls that came in between
		c.s.goes(c.refreshAll)
	}
}

func (c *core) refreshAll() {
	for {
		_ = c.reload()
		if c.refreshing.CompareAndSwap(oneRefresh, noRefresh) {
			return
		}
		c.refreshing.Store(oneRefresh)
	}
}

// heardOf makes sure that the definition in force is not older than that version, which a state in the store has. If no
// definition can have had that version, the state is broken, and the error says so.
func (c *core) heardOf(version int64) error {
	if b := c.broken.Load(); b != nil && version >= b.version && time.Now().Before(b.until) {
		return b.err
	}
	defer c.alone()()
	if in := c.inForce.Load(); in != nil && in.Version >= version {
		return nil
	}
	return c.look(version)
}

// reload asks the store for the definition.
func (c *core) reload() error {
	defer c.alone()()
	return c.look(0)
}

// A brokenVersion is a version that no definition can have had. States with that version or a larger one are broken,
// and the store is not asked about them again before until.
type brokenVersion struct {
	version int64
	until   time.Time
	err     error
}

// versionSlack is by how many µs a version may be ahead of the store's clock. The clocks of a store's servers differ a
// little, and after a failover another one sets the time.
const versionSlack = 60e6

// checkVersion returns an error if a state has a version that no definition can have had: versions are times of the
// store's clock, or follow the version before. If such a version were believed, the next definition would have a larger
// one, and all keys would be converted as if so much time had gone by.
func (c *core) checkVersion(version int64, found *backend.Definition, now int64) error {
	most := now + versionSlack
	if found != nil {
		most = max(most, found.Version)
	}
	if in := c.inForce.Load(); in != nil {
		most = max(most, in.Version)
	}
	if version <= most {
		storeMax(&c.newest, version)
		return nil
	}
	err := fmt.Errorf("limiter %q: the key's state is broken: no definition can have had version %d", c.name, version)
	c.broken.Store(&brokenVersion{version: version, until: time.Now().Add(lookEvery), err: err})
	return err
}

// look adopts what the store has. If that has forgotten the definition, as one without a disk
// does when it is restarted, it is told again. One for which permits come back in another way
// altogether is of a limiter that only has the same name, and the error says so until that is changed.
// seen is the version that a state has, or 0.
func (c *core) look(seen int64) error {
	found, now, err := c.load()
	if err != nil {
		return err
	}
	broken := c.checkVersion(seen, found, now)
	if err := c.follow(found); err != nil {
		return err
	}
	return broken
}

// follow adopts the definition that was found in the store, or tells the store again, also if an older program has set
// its limits in the meantime.
func (c *core) follow(found *backend.Definition) error {
	switch in := c.inForce.Load(); {
	case found != nil && found.Kind == backend.KindConcurrency != c.lends:
		if limits, by, telling := c.wants(); telling {
			return c.define(limits, later, by)
		}
		return c.otherKind(found)
	case found == nil || in != nil && (found.Version < in.Version || !follows(found, in.Definition)) || found.Version < c.newest.Load():
		return c.define(c.limits(), again, birth{})
	default:
		c.adopt(found)
		return nil
	}
}

// lookEvery is how long after a look for higher limits the next one begins at the earliest.
const lookEvery = time.Second

// lookForMore is called for a caller who wants more permits than the limits known here have: they may have been raised
// elsewhere. An instance whose callers all want so many would otherwise never ask the store, and never learn of it.
// Callers share a look, and many that want too much cost one look a second. The error is that of the context.
func (c *core) lookForMore(ctx context.Context) error {
	done := c.beginLook()
	if done == nil {
		return nil
	}
	limit := time.NewTimer(c.s.o.CallTimeout)
	defer limit.Stop()
	if err := wait(ctx, limit, done); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// beginLook begins a look unless one is under way. The channel that it returns is closed at the end of the look, and nil
// if it is too early for the next. An error does not matter: the limits known here then stay in force.
func (c *core) beginLook() <-chan struct{} {
	if c.s.cannotAsk(c.s.partOf(c.name, "")) != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looking != nil {
		return c.looking
	}
	if !c.looked.IsZero() && time.Since(c.looked) < min(lookEvery, c.s.o.RefreshInterval) {
		return nil
	}
	done := make(chan struct{})
	c.looking = done
	go func() {
		defer close(done)
		if c.inForce.Load() == nil {
			_ = c.first()
		} else {
			_ = c.reload()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.looking, c.looked = nil, time.Now()
	}()
	return done
}

// overruled tells that limits are not in force, once for each reason.
func (c *core) overruled(err error) {
	if was := c.overruledBy.Swap(&err); was == nil || (*was).Error() != err.Error() {
		c.s.report(Event{Kind: EventOverruled, Limiter: c.name, Err: err})
	}
}

// otherKind is the error of a limiter whose permits are lent, if those of the one in the store by that name are
// spent, or the other way round. The limiter cannot be asked, as if the store were away.
func (c *core) otherKind(d *backend.Definition) error {
	err := fmt.Errorf("limiter %q is a %v here and a %v in the store: one of the two needs another name", c.name, c.limits().Kind, d.Kind)
	c.overruled(err)
	return unavailable(err)
}

// reconfigure tells the store, and with it all instances, of new limits.
func (c *core) reconfigure(o any) error {
	limits, q, err := c.mayBecome(o)
	if err != nil {
		return err
	}
	if err := c.redefine(limits, q); err != nil {
		return err
	}
	c.convertNow()
	return nil
}

// mayBecome splits the options that a limiter which is there already is to have.
func (c *core) mayBecome(o any) (backend.Limits, queueing, error) {
	var p validate.Problems
	limits, q := split(&p, o)
	err := p.Err("store")
	switch {
	case err != nil:
	case limits.Kind == backend.KindConcurrency != c.lends:
		err = fmt.Errorf("%w: limiter %q: the kind must stay %v", weir.ErrInvalidOptions, c.name, c.limits().Kind)
	case c.closed.Load():
		err = limiter.ErrClosed
	}
	return limits, q, err
}

// requeue has the queue of this instance obey other options.
func (c *core) requeue(q queueing) {
	if old := c.queueing.Swap(&q); *old != q {
		c.cells.reconfigured()
	}
}

func (c *core) redefine(limits backend.Limits, q queueing) error {
	done, err := c.aloneInTime()
	if err != nil {
		return err
	}
	defer done()
	if err := c.s.cannotAsk(c.s.partOf(c.name, "")); err != nil {
		return unavailable(err)
	}
	by := newBirth()
	if err := c.define(limits, explicit, by); err != nil {
		return err
	}
	c.mu.Lock()
	c.wanted, c.wantedBy = limits, by
	c.mu.Unlock()
	c.requeue(q)
	return nil
}

// convertNow has the state of a limiter that is not partitioned written under the new
// definition at once: by the old one the store might forget it too early. Keys are converted
// when somebody asks for them; one that the old limits would have filled up by then is full.
func (c *core) convertNow() {
	switch { // if it fails, the next call does it
	case c.keyed:
	case c.lends:
		_, _ = c.askToHold(c.s.ctx, "", 0, false)
	default:
		_, _ = c.ask(c.s.ctx, "", backend.Request{})
	}
}
