package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/internal/model"
	"github.com/weir-go/weir/limiter/limitertest"
)

// A maker makes the limiter that a script is run on.
type maker func(limitertest.Kind, limitertest.Limits) (limiter.Limiter, error)

// A call is one TryAcquire or Acquire, as the model answered it and as the limiter did.
type call struct {
	id     int
	want   *model.Request
	cancel context.CancelFunc
	seen   bool // compared

	done  chan struct{} // closed: the rest is valid
	lease limiter.Lease
	err   error
	at    time.Duration
}

// A run is a script on its way.
type run struct {
	l       limiter.Limiter
	m       *model.Model
	start   time.Time
	calls   []*call
	leases  []limiter.Lease
	grants  []*model.Request // of the leases
	gone    map[int]bool     // leases that were released or refunded
	closed  bool
	newest  bool // at some time the order was not OldestFirst
	late    bool // the timer of the queue is held
	charged int  // permits that charges took
	ledger  grantLedger
	trace   strings.Builder
	problem string
}

// try runs s in a bubble of its own. problem is "" if model and limiter agreed;
// trace says what happened.
func (s script) try(t *testing.T, newLimiter maker) (problem, trace string) {
	synctest.Test(t, func(*testing.T) {
		l, err := newLimiter(s.kind, s.limits)
		if err != nil {
			problem = "cannot be made: " + err.Error()
			return
		}
		r := &run{l: l, m: model.New(s.kind, s.limits), start: time.Now(), gone: map[int]bool{}}
		r.newest = s.limits.Order != limiter.OldestFirst
		r.ledger.begin(s.kind, s.limits)
		for _, st := range s.steps {
			fmt.Fprintf(&r.trace, "at %-12v %v\n", r.now(), st)
			r.do(st)
			if st.op != opLate {
				r.fire()
			}
			r.settle()
			if r.problem != "" {
				break
			}
		}
		r.finish()
		problem, trace = r.problem, r.trace.String()
	})
	return problem, trace
}

func (r *run) now() time.Duration { return time.Since(r.start) }

// wrong notes the first disagreement.
func (r *run) wrong(format string, args ...any) {
	if r.problem == "" {
		r.problem = fmt.Sprintf("at %v: ", r.now()) + fmt.Sprintf(format, args...)
	}
}

// settle lets all goroutines run, and compares the results.
func (r *run) settle() {
	synctest.Wait()
	for _, c := range r.calls {
		if !c.seen {
			r.compare(c)
		}
	}
	r.ledger.check(r.wrong)
}

func (c *call) isDone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (r *run) compare(c *call) {
	want, done := c.want, c.isDone()
	switch {
	case want.Outcome == model.Waiting && !done:
		return
	case want.Outcome == model.Waiting:
		r.wrong("call %d for %d should wait, but came back: %s", c.id, want.N, c)
		return
	case !done:
		r.wrong("call %d for %d should be %s, but waits", c.id, want.N, show(want.Answer))
		return
	}
	c.seen = true
	fmt.Fprintf(&r.trace, "%16s call %d for %d: %s\n", "", c.id, want.N, c)
	if !agree(want, c) {
		r.wrong("call %d for %d should be %s, but is: %s", c.id, want.N, show(want.Answer), c)
	}
	if c.lease.Acquired() {
		r.leases = append(r.leases, c.lease)
		r.grants = append(r.grants, want)
		r.ledger.grant(r.chargedAt(c), c.lease.Permits())
	}
}

// chargedAt is when a grant counts: at the grid line that it is charged to. With a late timer that is before it was given.
func (r *run) chargedAt(c *call) time.Duration {
	if r.m.Kind == limitertest.Concurrency {
		return c.at
	}
	return c.want.From
}

func show(a model.Answer) string {
	s := fmt.Sprintf("%v at %v", a.Outcome, a.At)
	if a.Outcome == model.Rejected {
		s += fmt.Sprintf(" reason %q retry after %v", a.Reason, a.RetryMin)
		if a.RetryMax != a.RetryMin {
			s += fmt.Sprintf(" to %v", a.RetryMax)
		}
		if a.RetryOptional {
			s += " or unsaid"
		}
	}
	return s
}

func (c *call) String() string {
	d, _ := c.lease.RetryAfter()
	switch {
	case c.err != nil:
		return fmt.Sprintf("error %q at %v", c.err, c.at)
	case c.lease.Acquired():
		return fmt.Sprintf("granted %d at %v", c.lease.Permits(), c.at)
	}
	return fmt.Sprintf("rejected at %v reason %q retry after %v", c.at, c.lease.Reason(), d)
}

func agree(want *model.Request, c *call) bool {
	if c.at != want.At || c.err != nil && c.lease != (limiter.Lease{}) {
		return false
	}
	switch want.Outcome {
	case model.Granted:
		return c.err == nil && c.lease.Acquired() && c.lease.Permits() == want.N
	case model.OutOfRange:
		return errors.Is(c.err, limiter.ErrPermitCount)
	case model.Closed:
		return errors.Is(c.err, limiter.ErrClosed)
	case model.Cancelled:
		return errors.Is(c.err, context.Canceled)
	}
	if c.err != nil || c.lease.Acquired() || c.lease.Permits() != 0 || c.lease.Reason() != want.Reason {
		return false
	}
	d, ok := c.lease.RetryAfter()
	if !ok {
		return want.RetryMax == 0 || want.RetryOptional
	}
	return want.RetryMin <= d && d <= want.RetryMax
}

// ask puts a question to the limiter, with a context that is done or is not. how
// is the limiter's TryAcquire or Acquire.
func (r *run) ask(want *model.Request, done bool, how func(context.Context, int) (limiter.Lease, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{id: len(r.calls), want: want, cancel: cancel, done: make(chan struct{})}
	if done {
		cancel()
	}
	r.calls = append(r.calls, c)
	go func() {
		defer close(c.done)
		c.lease, c.err = how(ctx, want.N)
		c.at = r.now()
	}()
	r.settle()
}

// finish ends all calls, one by one while all is well, and checks that no permit
// was lost.
func (r *run) finish() {
	r.fire()
	r.settle()
	for _, c := range r.calls {
		if r.problem == "" && !c.seen {
			fmt.Fprintf(&r.trace, "at the end       cancel call %d\n", c.id)
			r.m.Cancel(c.want)
			c.cancel()
			r.settle()
		}
	}
	r.inOrder()
	if r.problem == "" && !r.closed {
		r.conserve()
	}
	for _, c := range r.calls {
		c.cancel()
	}
	if closer, ok := r.l.(io.Closer); ok {
		_ = closer.Close()
	}
	synctest.Wait()
}

// inOrder checks that no waiter was overtaken if the order is OldestFirst: a later
// one was not granted permits earlier.
func (r *run) inOrder() {
	var last *call
	for _, c := range r.calls {
		if r.newest || !c.isDone() || c.lease.Permits() <= 0 {
			continue
		}
		if last != nil && c.at < last.at {
			r.wrong("call %d was granted at %v, before call %d at %v, which came earlier", c.id, c.at, last.id, last.at)
		}
		last = c
	}
}

// conserve lets everything come back: the whole limit must be there again.
func (r *run) conserve() {
	for i := range r.leases {
		r.do(step{op: opRelease, n: i})
	}
	if _, every := r.m.Line(); every > 0 {
		// Nothing that was ever taken, and no debt, lasts longer than this.
		time.Sleep(every * time.Duration(8*len(r.calls)*10+40+r.charged))
	}
	r.do(step{op: opLook})
	if got := r.statistics().AvailablePermits; got != int64(r.m.Limits.Permits) {
		r.wrong("all came back, but %d of %d are available", got, r.m.Limits.Permits)
	}
}

func (r *run) statistics() limiter.Statistics {
	return r.l.(limiter.StatisticsProvider).Statistics()
}
