package calls

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// A trip is a round trip to a shard. It either returns in time or is lost.
type trip struct {
	batcher *batcher
	calls   []*Call
	begun   time.Time
	epoch   epoch // of the shard, when it began
	over    atomic.Bool
	watch   *time.Timer // calls endPause; nil until the backend is called
	paused  bool        // see batcher.endPause
	one     struct {    // backs what a trip with one group needs
		groups  [1]group
		batches [1]*backend.Batch
	}
}

// end reports whether the trip was not over before.
func (t *trip) end() bool { return t.over.CompareAndSwap(false, true) }

// lose answers the calls of a trip that takes too long, or of which the backend has panicked.
func (t *trip) lose() {
	if !t.end() {
		return
	}
	t.batcher.replace(t)
	q := t.calls[0]
	q.shard.record(q.Op, t.epoch, errTimeout)
	for _, q := range t.calls {
		q.fail(errTimeout, true)
	}
}

// run makes the round trip and reports whether it has returned in time. If the backend panics or ends the goroutine, it is lost.
func (t *trip) run(c *Client) (inTime bool) {
	defer func() {
		if t.watch != nil {
			t.watch.Stop()
		}
		if !inTime {
			t.lose()
		}
	}()
	recovered.Call("store: Backend", func() { inTime = t.ask(c) })
	return inTime
}

func (t *trip) ask(c *Client) (inTime bool) {
	op, sh := t.calls[0].Op, t.calls[0].shard
	if err := c.check(sh); err != nil {
		for _, q := range t.calls {
			q.fail(err, false)
		}
		return true
	}
	groups := t.grouped()
	t.batcher.watch(t) // not before: what the limiters know of calls that are sent must come before that they are lost
	answer := Answer{Sent: time.Now()}
	ctx, cancel := context.WithTimeout(c.ctx, c.o.Timeout)
	err := t.call(ctx, c, groups)
	cancel()
	if inTime = t.end(); inTime {
		var o outcomes
		for i := range groups {
			outcome, _, reason := groups[i].outcome()
			o.add(outcome, reason)
		}
		sh.record(op, t.epoch, o.result(err))
	}
	var outdated []*group
	for i := range groups {
		g := &groups[i]
		switch outcome, _, reason := g.outcome(); {
		case err != nil:
			g.fail(err, inTime)
		case outcome == backend.Decided:
			g.answer(answer, inTime)
		case outcome == backend.OutdatedDefinition || outcome == backend.OutdatedState:
			if q := g.calls[0]; q.Op == Acquire && inTime {
				q.Reply = g.lease
				q.Limiter.Answered(q)
			}
			outdated = append(outdated, g)
		default:
			g.fail(reasonOf(reason), inTime)
		}
	}
	if len(outdated) > 0 {
		c.repair(outdated)
	}
	return inTime
}

// call calls the method of the backend.
func (t *trip) call(ctx context.Context, c *Client, groups []group) error {
	if op := t.calls[0].Op; op != Decide {
		requests := make([]*backend.LeaseRequest, len(groups))
		for i := range groups {
			requests[i] = groups[i].lease
		}
		return c.callLease(ctx, op, requests)
	}
	batches := t.one.batches[:]
	if len(groups) > 1 {
		batches = make([]*backend.Batch, len(groups))
	}
	for i := range groups {
		batches[i] = &groups[i].batch
	}
	return c.backend.Decide(ctx, batches)
}

func (c *Client) callLease(ctx context.Context, op Op, requests []*backend.LeaseRequest) error {
	switch op {
	case Acquire:
		return c.backend.Acquire(ctx, requests)
	case Renew:
		return c.backend.Renew(ctx, requests)
	default:
		return c.backend.Release(ctx, requests)
	}
}

// outcomes are what the answers of a round trip say about the shard.
type outcomes struct {
	answered bool  // for at least one key the shard was reached, even if the key's outcome is Failed
	err      error // why a key could not be reached; ErrSetup before others
}

func (o *outcomes) add(outcome backend.Outcome, err error) {
	switch {
	case outcome != backend.Unreachable && !errors.Is(err, backend.ErrSetup):
		o.answered = true
	case !errors.Is(o.err, backend.ErrSetup):
		o.err = reasonOf(err)
	}
}

// result returns the error of a round trip; err is that of the backend. It counts as failed only if no key was answered, or
// with ErrSetup: if some were, the others may have just moved to another shard.
func (o *outcomes) result(err error) error {
	if err == nil && (!o.answered || errors.Is(o.err, backend.ErrSetup)) {
		return o.err
	}
	return err
}

func reasonOf(err error) error { return cmp.Or(err, errNoReason) }

// A group is the calls of a round trip with one answer: all about one key of a bucket or window, or one about a lease.
type group struct {
	calls []*Call
	batch backend.Batch
	lease *backend.LeaseRequest // nil: batch. A copy, because the backend can still write to it after a timeout
	err   error                 // why the calls cannot be sent again; see repair
}

// grouped returns the groups of the calls, sorted by name and key as [backend.Backend] demands.
func (t *trip) grouped() []group {
	calls := t.calls
	slices.SortStableFunc(calls, compare)
	n := 1
	for i := 1; i < len(calls); i++ {
		if calls[i].Op != Decide || compare(calls[i], calls[i-1]) != 0 {
			n++
		}
	}
	groups := t.one.groups[:]
	if n > 1 {
		groups = make([]group, n)
	}
	for i, begin, end := 0, 0, 1; i < n; i, begin, end = i+1, end, end+1 {
		for calls[begin].Op == Decide && end < len(calls) && compare(calls[begin], calls[end]) == 0 {
			end++
		}
		groups[i].fill(calls[begin:end:end])
	}
	return groups
}

func compare(a, b *Call) int {
	return cmp.Or(strings.Compare(a.Limiter.Name(), b.Limiter.Name()), strings.Compare(a.Key, b.Key))
}

// outcome returns that of the answer, with its error and the version of the newer definition. Without an answer it is 0.
func (g *group) outcome() (backend.Outcome, int64, error) {
	if g.lease != nil {
		return g.lease.Outcome, g.lease.Version, g.lease.Err
	}
	return g.batch.Outcome, g.batch.Version, g.batch.Err
}

// fill sets what the backend is asked for the calls, by the newest definition in force for one of them. They can differ: a
// closed limiter and one made later with the same name share round trips.
func (g *group) fill(calls []*Call) {
	g.calls = calls
	first, d := calls[0], calls[0].Limiter.Definition()
	if first.Op != Decide {
		if first.Op == Acquire {
			first.Limiter.Sending(first)
		}
		r := *first.Lease
		g.lease, r.Definition = &r, d
		return
	}
	for _, q := range calls[1:] {
		if own := q.Limiter.Definition(); own.Version > d.Version {
			d = own
		}
	}
	g.batch.Definition, g.batch.Key = d, first.Key
	g.fillRequests()
}

// fillRequests sets the requests. Permits that were taken under another schedule cannot be given back any more, so the Max of
// such a request becomes 0.
func (g *group) fillRequests() {
	b := &g.batch
	switch {
	case len(g.calls) == 1:
		b.Requests, b.Granted = g.calls[0].Requests, g.calls[0].one.granted[:]
	case g.allSingle():
		b.Requests, b.Granted = []backend.Request{{Min: 1, Max: int64(len(g.calls))}}, make([]int64, 1)
		return
	}
	for _, q := range g.calls {
		if q.Definition != nil && !q.Definition.SameLines(&b.Definition.Schedule) {
			for i := range q.Requests {
				q.Requests[i].Max = 0
			}
		}
		if len(g.calls) > 1 {
			b.Requests = append(b.Requests, q.Requests...)
		}
	}
	if len(b.Granted) != len(b.Requests) {
		b.Granted = make([]int64, len(b.Requests))
	}
}

// allSingle reports whether every call asks for one permit, as most do. Then one request asks for all, and what is
// granted goes to the first calls.
func (g *group) allSingle() bool {
	for _, q := range g.calls {
		if len(q.Requests) != 1 || q.Requests[0] != (backend.Request{Min: 1, Max: 1}) {
			return false
		}
	}
	return true
}

func (g *group) fail(err error, inTime bool) {
	for _, q := range g.calls {
		q.fail(err, inTime) // otherwise it has failed already
	}
}

// answer gives the calls their answers. If the round trip was lost, they have failed already, and what was granted belongs to
// no caller.
func (g *group) answer(a Answer, inTime bool) {
	switch q := g.calls[0]; {
	case g.lease == nil:
		g.split(a)
	case !inTime:
		if q.Op == Acquire && g.lease.OK && g.lease.Permits > 0 {
			q.Limiter.Unclaimed(q, g.lease)
		}
		return
	default:
		q.Answer, q.Definition, q.Reply = a, g.lease.Definition, g.lease
		if q.Op == Acquire {
			q.Limiter.Answered(q)
		}
	}
	for _, q := range g.calls { // in the order of their arrival
		q.deliver()
	}
}

// split splits the answer to a batch among the calls. The backend returns the state after all requests. Receipts need the
// state after each request, so split goes through the requests from the last to the first.
func (g *group) split(a Answer) {
	b, s := &g.batch, g.batch.State
	together, end := len(b.Requests) < len(g.calls), len(b.Granted) // together: see allSingle
	a.State, a.Now = b.State, b.Now
	for i, q := range slices.Backward(g.calls) {
		end -= len(q.Requests)
		q.Answer, q.Definition = a, b.Definition
		if q.Granted = q.one.granted[:]; !together {
			q.Granted = b.Granted[end : end+len(q.Requests)]
		} else if q.Granted[0] = 1; int64(i) >= b.Granted[0] {
			q.Granted[0] = backend.Rejected
		}
		if q.After = q.one.after[:]; len(q.Requests) > 1 {
			q.After = make([]After, len(q.Requests))
		}
		for j, r := range slices.Backward(q.Requests) {
			q.After[j] = After{Receipt: b.Definition.Receipt(&s), Missing: s.Missing}
			s.Missing -= missingChange(r.Op, q.Granted[j])
			if r.Op == backend.OpRefund || r.Op == backend.OpGiveBack {
				s.Refunded -= q.Granted[j]
			}
		}
	}
}

// missingChange returns by how much a request has changed what is missing.
func missingChange(op backend.Op, granted int64) int64 {
	if op > backend.OpCharge { // gives permits back
		return -granted
	}
	return max(granted, 0)
}
