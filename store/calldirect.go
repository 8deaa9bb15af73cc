package store

import (
	"cmp"
	"context"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/contexterror"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// A directCall is a call with everything that its round trip needs, in one allocation.
type directCall struct {
	call
	batch   backend.Batch
	group   [1]*call
	batches [1]*backend.Batch
}

// directCalls pools directCalls.
var directCalls = sync.Pool{New: func() any { return new(directCall) }}

// recycle makes a direct call available for reuse. The caller must not use the answer afterwards.
func (q *call) recycle() {
	if q.direct != nil {
		d := q.direct
		*d = directCall{}
		directCalls.Put(d)
	}
}

// askDirectly is ask on the caller's goroutine. It returns nil, nil if the limiter was reconfigured; then ask sends the
// requests through a batcher.
func (c *core) askDirectly(ctx context.Context, sh *shard, key string, requests []backend.Request) (*call, error) {
	c.s.inFlight.Add(1)
	defer c.s.finishInFlight()
	if ctx.Err() != nil {
		return nil, undecided(ctx)
	}
	caller := newCallContext(ctx)
	sent := time.Now()
	c.keeper.RefreshIfDue(sent)
	d := directCalls.Get().(*directCall)
	q, b := &d.call, &d.batch
	q.c, q.shard, q.key, q.onAnswer, q.direct = c, sh, key, doNothing, d
	q.requests = append(q.oneRequest[:0], requests...)
	d.group[0], d.batches[0] = q, b
	g := group(d.group[:])
	g.fill(b)
	begun := sh.breaker.current()
	err := c.s.decideDirectly(caller, sent, d.batches[:])
	failed := err == nil && b.Outcome == backend.Failed
	if failed || err == nil && b.Outcome == backend.Unreachable {
		err = reasonOf(b.Err)
	}
	switch {
	case err != nil && caller.left(): // the store need not be the cause: the probe finds out
		sh.breaker.probeInBackground()
		return nil, &undecidedError{cmp.Or(contexterror.Of(ctx), context.DeadlineExceeded)}
	case failed: // only the key is affected
		sh.breaker.record(begun, nil)
		return nil, unavailable(err)
	case err != nil:
		sh.breaker.record(begun, err)
		return nil, unavailable(err)
	}
	sh.breaker.record(begun, nil)
	if b.Outcome != backend.Decided {
		return nil, nil
	}
	g.answer(b, sent)
	return q, nil
}

// decideDirectly calls the backend. If the backend panics, the call fails. The panic does not reach the caller, because
// the caller can also be serveLoop, which must go on.
func (s *Store) decideDirectly(caller *callContext, now time.Time, batches []*backend.Batch) (err error) {
	within, cancel := s.boundContext(caller, now)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			recovered.Report("store: Backend.Decide", p, debug.Stack())
			err = errNoReturn
		}
	}()
	return s.backend.Decide(within, batches)
}

func doNothing() {}

// boundContext bounds the caller's context by CallTimeout.
func (s *Store) boundContext(caller *callContext, now time.Time) (context.Context, context.CancelFunc) {
	latest := now.Add(s.o.CallTimeout)
	if end, ok := caller.Deadline(); ok && end.Before(latest) {
		return caller, doNothing
	}
	return context.WithDeadline(caller, latest)
}

// A callContext stands for the caller's context while the backend runs on the caller's goroutine. newCallContext calls the
// methods of the caller's context, before the backend can take permits; errCallerLeft says why. Only Value is called
// later.
type callContext struct {
	caller context.Context
	done   <-chan struct{}
	end    time.Time
	ends   bool // there is an end
	first  atomic.Pointer[valueLookup]
}

// A valueLookup is the first result of Value. [context.WithDeadline] looks up the same key at the beginning and the end
// of the call; the second time the caller's context is not called.
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

// left reports whether the caller has left, or its deadline has passed: a network can end a call by the deadline a moment
// before the context does.
func (c *callContext) left() bool {
	return isClosed(c.done) || c.ends && !time.Now().Before(c.end)
}

// Value returns nil if the caller's context panics.
func (c *callContext) Value(key any) (value any) {
	if l := c.first.Load(); l != nil && l.key == key {
		return l.value
	}
	recovered.Call("store: Context.Value", func() { value = c.caller.Value(key) })
	c.first.CompareAndSwap(nil, &valueLookup{key, value})
	return value
}
