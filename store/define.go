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

func (c *core) newInForce(d *backend.Definition) *inForce {
	every := float64(c.s.o.RefreshInterval) * (0.8 + 0.2*rand.Float64())
	return &inForce{Definition: d, due: time.Now().Add(time.Duration(every))}
}

// A definitionLoad is the first question for a limiter's definition. All callers who need the answer wait for it.
type definitionLoad struct {
	done chan struct{}
	err  error
}

// defined makes sure that a definition is in force, and asks the store for it the first time.
func (c *core) defined(ctx context.Context, limit *time.Timer) error {
	if c.inForce.Load() != nil {
		c.refreshIfDue(time.Now())
		return nil
	}
	f := c.startFirstLoad()
	if err := wait(ctx, limit, f.done); err != nil {
		return err
	}
	return f.err
}

func (c *core) startFirstLoad() *definitionLoad {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firstLoad != nil {
		return c.firstLoad
	}
	f := &definitionLoad{done: make(chan struct{})}
	c.firstLoad = f
	go func() {
		f.err = c.defineFirst()
		c.mu.Lock()
		c.firstLoad = nil
		c.mu.Unlock()
		close(f.done)
	}()
	return f
}

// lockDefinition waits until nobody else here is defining the limiter; the function that it returns lets
// the next begin. It is no mutex, because those who wait for one stop the time in
// testing/synctest.
func (c *core) lockDefinition() (done func()) {
	c.definitionLock <- struct{}{}
	return func() { <-c.definitionLock }
}

// defineTimeouts is how many times CallTimeout define may take: no try begins after two, and a try is two calls.
const defineTimeouts = 4

// lockDefinitionInTime is alone for a caller who waits. It returns an error if others are at it for so long.
func (c *core) lockDefinitionInTime() (done func(), err error) {
	limit := time.NewTimer(defineTimeouts * c.s.o.CallTimeout)
	defer limit.Stop()
	select {
	case c.definitionLock <- struct{}{}:
		return func() { <-c.definitionLock }, nil
	case <-limit.C:
		return nil, unavailable(errReconfiguring)
	}
}

// defineFirst sets the limits of the constructor, unless somebody was faster here.
func (c *core) defineFirst() error {
	defer c.lockDefinition()()
	if c.inForce.Load() != nil {
		return nil
	}
	if limits, by, telling := c.pendingReconfigure(); telling {
		return c.define(limits, forReconfigureLater, by)
	}
	return c.define(c.limits(), forFirstUse, c.madeAt)
}

// A defineReason is why limits are to be those in force.
type defineReason uint8

const (
	forFirstUse         defineReason = iota // the constructor's are, where no newer ones are in force: see maySet
	forRestore                              // they were in force, and the store may have forgotten them
	forReconfigure                          // Reconfigure has said so
	forReconfigureLater                     // ReconfigureLater has said so, unless others were set since it was called
)

// define makes sure that the store has these limits for the name, or adopts those that overrule them. Other instances
// may do that at the same time with others. Here only one goroutine is at it: see alone. It takes longestDefine at the
// most. by is when the limiter was made or the call of Reconfigure or ReconfigureLater came; it is ignored for again.
func (c *core) define(wanted backend.Limits, why defineReason, by stamp) error {
	tries := attempts{since: time.Now()}
	for {
		found, now, err := c.loadDefinition()
		if err != nil {
			return err
		}
		next := c.nextDefinition(found, wanted, why, by, now)
		if next == found {
			if c.leased != (found.Kind == backend.KindConcurrency) {
				return c.kindMismatch(found)
			}
			c.adopt(found)
			if reason := c.refusal(found, wanted, why, by, now); reason != nil {
				c.reportOverruled(fmt.Errorf("limits of %+v are in force, not %+v: %w", found.Limits, wanted, reason))
			}
			return nil
		}
		old := int64(0)
		if found != nil {
			old = found.Version
		}
		p := c.s.shardOf(c.name, "")
		begun := p.breaker.current()
		did, err := callWithTimeout(c.s, func(ctx context.Context) (bool, error) { return c.s.backend.Define(ctx, old, next) })
		if p.breaker.record(begun, err); err != nil {
			return unavailable(err)
		}
		if did {
			c.adopt(next)
			return nil
		}
		pause, ok := tries.next(2 * c.s.o.CallTimeout)
		if !ok || pause > 0 && !c.s.sleep(pause) {
			return unavailable(errReconfiguring)
		}
	}
}

// nextDefinition is what follows the definition that was found in the store, if there is one, and the
// one in force here, which the store may have lost. It is newer than all that was seen: the
// store's clock may have stepped back.
func (c *core) nextDefinition(found *backend.Definition, wanted backend.Limits, why defineReason, by stamp, now int64) *backend.Definition {
	known, seen := found, c.newest.Load()
	switch in := c.inForce.Load(); {
	case in == nil:
	case found == nil || found.Version < in.Version:
		known = in.Definition
	case why == forRestore && follows(found, in.Definition):
		wanted = found.Limits
	case why == forRestore:
		return restored(in.Definition, found, seen, now)
	}
	if known == nil {
		known = backend.NewDefinition(c.name, wanted, now)
		known.Origin = c.origin(nil, wanted, why, by, now)
		known.Version = max(known.Version, seen+1)
		return known
	}
	origin := known.Origin
	if c.refusal(known, wanted, why, by, now) != nil {
		wanted = known.Limits
	} else if why != forRestore && (known.Limits != wanted || c.renews(known, why, by, now)) {
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

// refusal returns why other limits than those of d may not be set, or nil.
func (c *core) refusal(d *backend.Definition, wanted backend.Limits, why defineReason, by stamp, now int64) error {
	switch {
	case d.Limits == wanted:
		return nil
	case why == forFirstUse:
		return c.firstUseRefusal(d, wanted, now)
	case why == forReconfigureLater && !by.after(d, now+c.s.o.CallTimeout.Microseconds()): // the answer with now was on its way for so long
		return errors.New("they were set after ReconfigureLater was called")
	}
	return nil
}

// renews reports whether limits that are in force are set once more, which counts from now on.
func (c *core) renews(d *backend.Definition, why defineReason, by stamp, now int64) bool {
	if why == forFirstUse {
		return c.o.Generation > d.Generation
	}
	return d.By != by.String() && (why == forReconfigure && !d.Explicit || by.after(d, now))
}

func (c *core) loadDefinition() (found *backend.Definition, now int64, err error) {
	type loaded struct {
		d   *backend.Definition
		now int64
	}
	p := c.s.shardOf(c.name, "")
	begun := p.breaker.current()
	got, err := callWithTimeout(c.s, func(ctx context.Context) (l loaded, err error) {
		l.d, l.now, err = c.s.backend.Load(ctx, c.name)
		return l, err
	})
	if p.breaker.recordRead(begun, err); err != nil {
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
		if !c.inForce.CompareAndSwap(old, c.newInForce(d)) {
			continue
		}
		if old == nil || old.Version != d.Version {
			c.s.listen()
			c.keys.reconfigured()
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
	if in == nil || !now.After(in.due) || c.s.shardOf(c.name, "").breaker.err() != nil {
		return
	}
	if c.inForce.CompareAndSwap(in, c.newInForce(in.Definition)) {
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
	if c.s.shardOf(c.name, "").breaker.err() != nil {
		return
	}
	if c.refreshing.Swap(twoRefreshes) == noRefresh {
		c.refreshing.Store(oneRefresh) // it begins after this, also for calls that came in between
		c.s.goBackground(c.refreshAll)
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

// awaitVersion makes sure that the definition in force is not older than that version, which a state in the store has. If no
// definition can have had that version, the state is broken, and the error says so.
func (c *core) awaitVersion(version int64) error {
	if b := c.broken.Load(); b != nil && version >= b.version && time.Now().Before(b.until) {
		return b.err
	}
	defer c.lockDefinition()()
	if in := c.inForce.Load(); in != nil && in.Version >= version {
		return nil
	}
	return c.loadAndFollow(version)
}

// reload asks the store for the definition.
func (c *core) reload() error {
	defer c.lockDefinition()()
	return c.loadAndFollow(0)
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
	c.broken.Store(&brokenVersion{version: version, until: time.Now().Add(raiseCheckInterval), err: err})
	return err
}

// loadAndFollow adopts what the store has. If that has forgotten the definition, as one without a disk
// does when it is restarted, it is told again. One for which permits come back in another way
// altogether is of a limiter that only has the same name, and the error says so until that is changed.
// seen is the version that a state has, or 0.
func (c *core) loadAndFollow(seen int64) error {
	found, now, err := c.loadDefinition()
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
	case found != nil && found.Kind == backend.KindConcurrency != c.leased:
		if limits, by, telling := c.pendingReconfigure(); telling {
			return c.define(limits, forReconfigureLater, by)
		}
		return c.kindMismatch(found)
	case found == nil || in != nil && (found.Version < in.Version || !follows(found, in.Definition)) || found.Version < c.newest.Load():
		return c.define(c.limits(), forRestore, stamp{})
	default:
		c.adopt(found)
		return nil
	}
}

// raiseCheckInterval is how long after a look for higher limits the next one begins at the earliest.
const raiseCheckInterval = time.Second

// checkForRaise is called for a caller who wants more permits than the limits known here have: they may have been raised
// elsewhere. An instance whose callers all want so many would otherwise never ask the store, and never learn of it.
// Callers share a look, and many that want too much cost one look a second. The error is that of the context.
func (c *core) checkForRaise(ctx context.Context) error {
	done := c.startRaiseCheck()
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

// startRaiseCheck begins a look unless one is under way. The channel that it returns is closed at the end of the look, and nil
// if it is too early for the next. An error does not matter: the limits known here then stay in force.
func (c *core) startRaiseCheck() <-chan struct{} {
	if c.s.cannotAsk(c.s.shardOf(c.name, "")) != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raiseCheck != nil {
		return c.raiseCheck
	}
	if !c.raiseChecked.IsZero() && time.Since(c.raiseChecked) < min(raiseCheckInterval, c.s.o.RefreshInterval) {
		return nil
	}
	done := make(chan struct{})
	c.raiseCheck = done
	go func() {
		defer close(done)
		if c.inForce.Load() == nil {
			_ = c.defineFirst()
		} else {
			_ = c.reload()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raiseCheck, c.raiseChecked = nil, time.Now()
	}()
	return done
}

// reportOverruled tells that limits are not in force, once for each reason.
func (c *core) reportOverruled(err error) {
	if was := c.overruledBy.Swap(&err); was == nil || (*was).Error() != err.Error() {
		c.s.report(Event{Kind: EventOverruled, Limiter: c.name, Err: err})
	}
}

// kindMismatch is the error of a limiter whose permits are lent, if those of the one in the store by that name are
// spent, or the other way round. The limiter cannot be asked, as if the store were away.
func (c *core) kindMismatch(d *backend.Definition) error {
	err := fmt.Errorf("limiter %q is a %v here and a %v in the store: one of the two needs another name", c.name, c.limits().Kind, d.Kind)
	c.reportOverruled(err)
	return unavailable(err)
}

// reconfigure tells the store, and with it all instances, of new limits.
func (c *core) reconfigure(o any) error {
	limits, q, err := c.splitForReconfigure(o)
	if err != nil {
		return err
	}
	if err := c.setLimits(limits, q); err != nil {
		return err
	}
	c.convertNow()
	return nil
}

// splitForReconfigure splits the options that a limiter which is there already is to have.
func (c *core) splitForReconfigure(o any) (backend.Limits, queueing, error) {
	var p validate.Problems
	limits, q := split(&p, o)
	err := p.Err("store")
	switch {
	case err != nil:
	case limits.Kind == backend.KindConcurrency != c.leased:
		err = fmt.Errorf("%w: limiter %q: the kind must stay %v", weir.ErrInvalidOptions, c.name, c.limits().Kind)
	case c.closed.Load():
		err = limiter.ErrClosed
	}
	return limits, q, err
}

// setQueueing has the queue of this instance obey other options.
func (c *core) setQueueing(q queueing) {
	if old := c.queueing.Swap(&q); *old != q {
		c.keys.reconfigured()
	}
}

func (c *core) setLimits(limits backend.Limits, q queueing) error {
	done, err := c.lockDefinitionInTime()
	if err != nil {
		return err
	}
	defer done()
	if err := c.s.cannotAsk(c.s.shardOf(c.name, "")); err != nil {
		return unavailable(err)
	}
	by := newStamp()
	if err := c.define(limits, forReconfigure, by); err != nil {
		return err
	}
	c.mu.Lock()
	c.wantedLimits, c.wantedAt = limits, by
	c.mu.Unlock()
	c.setQueueing(q)
	return nil
}

// convertNow has the state of a limiter that is not partitioned written under the new
// definition at once: by the old one the store might forget it too early. Keys are converted
// when somebody asks for them; one that the old limits would have filled up by then is full.
func (c *core) convertNow() {
	switch { // if it fails, the next call does it
	case c.keyed:
	case c.leased:
		_, _ = c.askForLease(c.s.ctx, "", 0, false)
	default:
		_, _ = c.ask(c.s.ctx, "", backend.Request{})
	}
}
