package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/limiter/internal/model"
	"github.com/weir-go/weir/limiter/limitertest"
)

// do takes one step with both, the model first.
func (r *run) do(s step) {
	if r.late && !r.catchesUp(s) {
		r.fire()
		r.settle()
	}
	r.m.Advance(r.now())
	switch s.op {
	case opTry:
		r.ask(r.m.Try(s.n), false, r.l.TryAcquire)
	case opPeek:
		r.peek(s.n)
	case opCharge:
		r.charge(s.n)
	case opTryDone:
		r.ask(r.doneContext(s.n, true), true, r.l.TryAcquire)
	case opAcquire:
		r.ask(r.m.Acquire(s.n), false, r.l.Acquire)
	case opAcquireDone:
		r.ask(r.doneContext(s.n, false), true, r.l.Acquire)
	case opBurst:
		for range s.n {
			r.ask(r.m.Acquire(1), false, r.l.Acquire)
		}
	case opCancel:
		r.cancel(s.n)
	case opAdvance, opToLine:
		r.sleep(s)
	case opLate:
		r.sleepLate(s)
	case opRelease:
		r.release(s.n)
	case opRefund:
		r.refund(s.n)
	case opReconfigure:
		r.reconfigure(s.limits)
	case opLook:
		r.look()
	case opClose:
		r.m.Close()
		r.closed = true
		if err := r.l.(io.Closer).Close(); err != nil {
			r.wrong("Close: %v", err)
		}
	}
}

// peek compares the answer of Peek. That it changes nothing, later steps show.
func (r *run) peek(n int) {
	c := &call{want: r.m.Peek(n)}
	c.lease, c.err = r.l.(limiter.Peeker).Peek(context.Background(), n)
	c.at = r.now()
	fmt.Fprintf(&r.trace, "%16s Peek(%d): %s\n", "", n, c)
	if !agree(c.want, c) {
		r.wrong("Peek(%d) should be %s, but is: %s", n, show(c.want.Answer), c)
	}
	c.lease.Release()
	c.lease.Refund()
}

// charge compares the levels that Charge returns. A concurrency limiter cannot be charged.
func (r *run) charge(n int) {
	got, err := r.l.(limiter.Charger).Charge(context.Background(), n)
	fmt.Fprintf(&r.trace, "%16s Charge(%d): %+v %v\n", "", n, got, err)
	switch {
	case r.m.Kind == limitertest.Concurrency:
		if !errors.Is(err, errors.ErrUnsupported) {
			r.wrong("Charge(%d) should be unsupported, but is %+v %v", n, got, err)
		}
	case r.closed:
		if !errors.Is(err, limiter.ErrClosed) {
			r.wrong("Charge(%d) should be ErrClosed, but is %+v %v", n, got, err)
		}
	default:
		want, back := r.m.Charge(n)
		if got != want || err != nil {
			r.wrong("Charge(%d) should be %+v, but is %+v %v", n, want, got, err)
		}
		r.charged += max(n, 0)
		r.ledger.grant(r.now(), -back)
	}
}

// catchesUp reports whether a step brings a limiter up to date although its timer is late.
func (r *run) catchesUp(s step) bool {
	switch s.op {
	case opTry, opPeek, opAcquire:
		return s.n >= 0 && s.n <= r.m.Limits.Permits
	case opBurst, opLook, opClose, opCharge:
		return r.m.Kind != limitertest.Concurrency || s.op != opCharge
	case opCancel:
		return r.m.Queued() > 0
	}
	return false
}

// sleepLate sleeps with the timer of the queue held. What is granted after that is granted later than it
// came due, and charged to the grid line on which it did.
func (r *run) sleepLate(s step) {
	r.late, r.m.Late = true, true
	if held, ok := r.l.(*model.Limiter); ok {
		held.Hold()
	} else {
		limiter.HoldTimer(r.l)
	}
	_, every := r.m.Line()
	if every > 0 {
		time.Sleep(every * time.Duration(s.n) / 8)
	}
}

// fire ends the lateness: the timer fires.
func (r *run) fire() {
	if !r.late {
		return
	}
	r.m.Advance(r.now())
	r.late, r.m.Late = false, false
	if held, ok := r.l.(*model.Limiter); ok {
		held.Fire()
	} else {
		limiter.FireTimer(r.l)
	}
}

// doneContext is what becomes of a call whose context is done before: TryAcquire
// looks at the range first.
func (r *run) doneContext(n int, try bool) *model.Request {
	outcome := model.Cancelled
	if try && (n < 0 || n > r.m.Limits.Permits) {
		outcome = model.OutOfRange
	}
	return &model.Request{N: n, Answer: model.Answer{Outcome: outcome, At: r.now()}}
}

func (r *run) cancel(n int) {
	var waiting []*call
	for _, c := range r.calls {
		if !c.seen {
			waiting = append(waiting, c)
		}
	}
	if len(waiting) > 0 {
		c := waiting[n%len(waiting)]
		r.m.Cancel(c.want)
		c.cancel()
	}
}

func (r *run) sleep(s step) {
	line, every := r.m.Line()
	if every == 0 {
		every = time.Millisecond // a concurrency limiter has no grid
	}
	d := every * time.Duration(s.n) / 8
	if s.op == opToLine {
		d = line + every*time.Duration(s.n) + time.Duration(s.off) - r.now()
	}
	if d > 0 {
		time.Sleep(d)
	}
	r.m.Advance(r.now())
}

func (r *run) release(n int) {
	if len(r.leases) == 0 {
		return
	}
	n %= len(r.leases)
	if !r.gone[n] {
		r.gone[n] = true
		r.m.Release(r.leases[n].Permits())
		r.ledger.release(r.leases[n].Permits())
	}
	r.leases[n].Release()
}

// refund refunds a lease while no caller waits, which would take the permits at once. A bucket can give back more than a
// state, which has no running sum, knows to be unpaid: what is too much, the tests of refunds say.
func (r *run) refund(n int) {
	if len(r.leases) == 0 || r.m.Queued() > 0 || r.closed || r.m.Kind == limitertest.Concurrency {
		return
	}
	if n %= len(r.leases); r.gone[n] {
		return
	}
	r.gone[n] = true
	before := r.remaining()
	r.leases[n].Refund()
	back, want := r.remaining()-before, r.m.Refund(r.grants[n])
	fmt.Fprintf(&r.trace, "%16s %d of %d permits\n", "", back, r.leases[n].Permits())
	if back < want || back > want && r.m.Kind == limitertest.SlidingWindow {
		r.wrong("Refund should give back %d, but gives back %d", want, back)
	}
	r.m.RefundMore(back - want)
	r.ledger.grant(r.now(), -int(back))
}

// remaining returns the level of the limiter.
func (r *run) remaining() int64 {
	level, err := r.l.(limiter.Charger).Charge(context.Background(), 0)
	if err != nil {
		r.wrong("Charge(0): %v", err)
	}
	return level.Remaining
}

func (r *run) reconfigure(to limitertest.Limits) {
	valid := usable(r.m.Kind, to)
	err := reconfigureAny(r.l, to)
	switch {
	case r.closed && valid:
		if !errors.Is(err, limiter.ErrClosed) {
			r.wrong("Reconfigure after Close: %v", err)
		}
	case r.closed: // either error will do
		if err == nil {
			r.wrong("Reconfigure after Close succeeded")
		}
	case !valid:
		if !errors.Is(err, limiter.ErrInvalidOptions) {
			r.wrong("Reconfigure with invalid options: %v", err)
		}
	case err != nil:
		r.wrong("Reconfigure: %v", err)
	default:
		r.m.Reconfigure(to)
		r.newest = r.newest || to.Order != limiter.OldestFirst
		r.ledger.reconfigure(r.now(), to)
	}
}

func reconfigureAny(l limiter.Limiter, to limitertest.Limits) error {
	if l, ok := l.(*model.Limiter); ok {
		return l.Reconfigure(to)
	}
	return reconfigure(l, to)
}

// look compares all that can be seen without asking for permits.
func (r *run) look() {
	got, want := r.statistics(), r.m.Statistics()
	fmt.Fprintf(&r.trace, "%16s %+v\n", "", got)
	if got != want {
		r.wrong("the statistics are %+v, want %+v", got, want)
	}
	if r.closed {
		return
	}
	least, most, wantOK := r.m.Idle()
	idle, ok := r.l.(custom.Idler).IdleDuration()
	if ok != wantOK || ok && (idle < least || idle > most) {
		r.wrong("IdleDuration is %v %v, want %v to %v, %v", idle, ok, least, most, wantOK)
	}
}
