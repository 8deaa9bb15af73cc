package limiter

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/rate"
)

// bucketState has the limits of a bucket, and fields that only few buckets need at any one time. A shared state is
// never written to.
type bucketState struct {
	noneUntil atomic.Int64 // if not 0, no permit comes back before that moment; see acquire
	unlocked  atomic.Int64 // leases rejected because of noneUntil

	kind   rate.Kind
	refill int64 // permits that come back on each line
	period int64 // nanoseconds between two lines
	shared bool
	common

	granted  int64 // leases granted; bucket.granted has the others
	refunded int64 // permits that were refunded since line, and since a Charge gave permits back

	family       *bucketFamily // nil: the state of a bucket without a family
	madeIn       any           // of a bucket that a factory has made and no partition has got: the entry in which it lies
	sharedClosed *bucketState  // the state that replaces a shared one when its bucket is closed
}

// newBucketState returns a state with those limits for one bucket.
func newBucketState(l rate.Limits) *bucketState {
	return &bucketState{
		common: newCommon(l),
		kind:   l.Kind, refill: refillOf(l), period: int64(l.Period),
	}
}

// refillOf returns how many permits come back on each line: all of a fixed window, also permits that it owes.
func refillOf(l rate.Limits) int64 {
	if l.Kind == rate.FixedWindow {
		return math.MaxInt64
	}
	return int64(l.Refill)
}

// start starts a bucket whose grid begins now.
func (b *bucket) start(s *bucketState) {
	b.line = moment()
	b.current.Store(s)
}

// notBegun is the line of a bucket whose grid begins with its first call.
const notBegun = 1 << 62

func (s *bucketState) limits() rate.Limits {
	l := s.queue.Limits(rate.Limits{Kind: s.kind, Permits: int(s.limit), Period: time.Duration(s.period)})
	if s.kind == rate.TokenBucket {
		l.Refill = int(s.refill)
	}
	return l
}

// notMade is the state of a zero TokenBucket or FixedWindow: closed, without permits.
var notMade = shareable(&bucketState{common: common{closed: true}})

func (b *bucket) own() *common { return &b.ownState().common }

// ownState returns the state for writing. If it is shared, the bucket first gets a state of its own, so a state that was
// read before is out of date.
func (b *bucket) ownState() *bucketState {
	if s := b.state(); s.shared {
		own := newBucketState(s.limits())
		own.family, own.closed = s.family, s.closed
		b.current.Store(own)
	}
	return b.state()
}

// A bucketFamily has the states that the buckets of one factory share. They have the same limits, or two kinds of limits while a
// program reconfigures them.
type bucketFamily struct {
	first  *bucketState
	latest atomic.Pointer[bucketState]
	fresh  sync.Pool // of states that are as the first, for their madeIn
}

// newBucketFamily returns the family of a factory.
func newBucketFamily(l rate.Limits) *bucketFamily {
	f := &bucketFamily{}
	f.first = f.state(l)
	f.fresh.New = func() any {
		s := newBucketState(l)
		s.family, s.shared, s.sharedClosed = f, true, f.first.sharedClosed
		return s
	}
	return f
}

// stateIn returns the first state of a bucket that lies in an entry.
func (f *bucketFamily) stateIn(entry any) *bucketState {
	s := f.fresh.Get().(*bucketState)
	s.madeIn = entry
	return s
}

// settle gives a bucket that is locked the shared state of its family in place of its first one.
func (b *bucket) settle() {
	s := b.state()
	s.madeIn = nil
	b.current.Store(s.family.first)
	s.family.fresh.Put(s)
}

// state returns the shared state of buckets with those limits.
func (f *bucketFamily) state(l rate.Limits) *bucketState {
	if s := f.latest.Load(); s != nil && s.limits() == l {
		return s
	}
	s := newBucketState(l)
	s.family = f
	f.latest.Store(shareable(s))
	return s
}

// shareable makes s a state of many buckets, and returns it.
func shareable(s *bucketState) *bucketState {
	closed := newBucketState(s.limits())
	closed.shared, closed.closed, closed.family = true, true, s.family
	s.shared, s.sharedClosed = true, closed
	return s
}

// share gives a bucket that a line has filled the shared state of its family again. Older leases are worth nothing then, so that
// refunds need not be kept. It does nothing for a bucket that needs its own state: for waiters, a timer, or counts that do not
// fit.
func (b *bucket) share() {
	s := b.state()
	if s.shared || s.family == nil || b.missing > 0 || s.closed || s.timer != nil || s.spinning || !s.queue.Empty() {
		return
	}
	granted, failed := b.counts()
	if granted != int64(uint32(granted)) || failed != int64(uint32(failed)) {
		return
	}
	b.granted, b.failed = uint32(granted), uint32(failed)
	b.current.Store(s.family.state(s.limits()))
}

func (b *bucket) limits() rate.Limits { return b.state().limits() }

// adopt lets permits that are missing stay missing. If the period changes, a grid of the new period begins at the current line;
// if its next line lies in the past, it begins now instead, with the permits of one line.
func (b *bucket) adopt(now int64, l rate.Limits) {
	s, period := b.state(), int64(l.Period)
	periodChanges := period != s.period
	if periodChanges {
		b.endIdleness(now)
	}
	if periodChanges && s.kind == rate.FixedWindow {
		b.spent += b.missing + s.refunded // all earlier leases are paid for
	}
	if s.shared {
		s = s.family.state(l)
		b.current.Store(s)
	} else {
		s.refill, s.period = refillOf(l), period
	}
	if periodChanges && now-b.line >= period {
		b.line = now
		b.missing -= min(b.missing, s.refill)
		b.linePassed()
		b.share()
	}
	if b.state().shared {
		b.current.Store(s.family.state(l)) // the line can have filled the bucket, see share
	} else {
		setLimits(b, now, l)
	}
}
