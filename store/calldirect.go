package store

import (
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// An directCall call has with it what its flight needs, in one piece.
type directCall struct {
	call
	batch   backend.Batch
	group   [1]*call
	batches [1]*backend.Batch
}

// directCalls are alone calls that were answered.
var directCalls = sync.Pool{New: func() any { return new(directCall) }}

// recycle is called by who has made something else of the answer, and does not need it any more.
func (q *call) recycle() {
	if q.direct != nil {
		home := q.direct
		*home = directCall{}
		directCalls.Put(home)
	}
}

// askDirectly is ask without another goroutine. It returns nothing if the limiter was
// reconfigured, and the question is to be asked in the usual way.
func (c *core) askDirectly(ctx context.Context, p *shard, key string, asks []backend.Request) (*call, error) {
	c.s.inFlight.Add(1)
	defer c.s.finishInFlight()
	if ctx.Err() != nil {
		return nil, undecided(ctx)
	}
	caller := newCallContext(ctx)
	sent := time.Now()
	c.refreshIfDue(sent)
	one := directCalls.Get().(*directCall)
	q, b := &one.call, &one.batch
	q.c, q.shard, q.key, q.onAnswer, q.direct = c, p, key, noCancel, one
	q.requests = append(q.oneRequest[:0], asks...)
	one.group[0], one.batches[0] = q, b
	g := group(one.group[:])
	g.fill(b)
	begun := p.breaker.current()
	err := c.s.decideDirectly(caller, sent, one.batches[:])
	failed := err == nil && b.Outcome == backend.Failed
	if failed || err == nil && b.Outcome == backend.Unreachable {
		err = reasonOf(b.Err)
	}
	switch {
	case err != nil && isClosed(caller.done): // the caller has left, which says nothing of the store
		p.breaker.probeInBackground()
		return nil, undecided(ctx)
	case failed: // that is the key's own trouble
		p.breaker.record(begun, nil)
		return nil, unavailable(err)
	case err != nil:
		p.breaker.record(begun, err)
		return nil, unavailable(err)
	}
	p.breaker.record(begun, nil)
	c.s.count.decisions.Add(1)
	if b.Outcome != backend.Decided {
		return nil, nil
	}
	g.answer(b, sent)
	return q, nil
}

// decideDirectly asks the backend on this goroutine. A backend that panics is one that has failed, as it is on goroutines of
// ours: the caller may be serving a queue.
func (s *Store) decideDirectly(caller *callContext, now time.Time, batches []*backend.Batch) (err error) {
	within, cancel := s.withCallTimeout(caller, now)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			recovered.Report("store: Backend.Decide", p, debug.Stack())
			err = errNoReturn
		}
	}()
	return s.backend.Decide(within, batches)
}

func noCancel() {}

// withCallTimeout bounds the caller's context by CallTimeout, where it does not end before that anyway.
func (s *Store) withCallTimeout(caller *callContext, now time.Time) (context.Context, context.CancelFunc) {
	latest := now.Add(s.o.CallTimeout)
	if end, ok := caller.Deadline(); ok && end.Before(latest) {
		return caller, noCancel
	}
	return context.WithDeadline(caller, latest)
}

// A callContext stands for the caller's context while the backend is asked on the caller's goroutine. What it needs of
// that, it has asked for before: a method that panics or ends the goroutine in the middle of the call would lose what
// was granted. Only Value is passed on.
type callContext struct {
	caller context.Context
	done   <-chan struct{}
	end    time.Time
	ends   bool // end is set
	first  atomic.Pointer[valueLookup]
}

// A valueLookup is what Value has returned the first time. [context.WithDeadline] looks up the same key when the call begins
// and when it is over; the second time the caller's context is not called.
type valueLookup struct{ key, value any }

func newCallContext(caller context.Context) *callContext {
	c := &callContext{caller: caller, done: caller.Done()}
	c.end, c.ends = caller.Deadline()
	return c
}

func (c *callContext) Done() <-chan struct{} { return c.done }

func (c *callContext) Deadline() (time.Time, bool) { return c.end, c.ends }

func (c *callContext) Err() error {
	switch {
	case !isClosed(c.done):
		return nil
	case c.ends && !time.Now().Before(c.end):
		return context.DeadlineExceeded
	default:
		return context.Canceled
	}
}

// Value is nil where that of the caller's context panics.
func (c *callContext) Value(key any) (value any) {
	if l := c.first.Load(); l != nil && l.key == key {
		return l.value
	}
	recovered.Call("store: Context.Value", func() { value = c.caller.Value(key) })
	c.first.CompareAndSwap(nil, &valueLookup{key, value})
	return value
}
