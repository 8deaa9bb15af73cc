package store

import (
	"context"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/calls"
)

// ErrUnavailable means that the store could not be asked. It is the value of [OutageKey] and the error of Reconfigure,
// wrapped with the reason.
var ErrUnavailable = calls.ErrUnavailable

// Name implements [calls.Limiter], as the methods below do.
func (c *core) Name() string { return c.name }

func (c *core) Definition() *backend.Definition { return c.keeper.InForce().Definition }

func (c *core) AwaitDefinition(version int64) error { return c.keeper.Await(version) }

// Unclaimed gives back what was granted to a caller that has left. Waiting callers ask for it then.
func (c *core) Unclaimed(q *calls.Call, reply *backend.LeaseRequest) {
	if q.Op != calls.Decide {
		c.releaseUnclaimed(q, reply)
		return
	}
	for i, r := range q.Requests {
		if r.Op == backend.OpTake {
			c.undo(q, i)
		}
	}
}

// ask sends requests and waits for the answer. The error is that of [calls.Client.Ask].
func (c *core) ask(ctx context.Context, key string, requests ...backend.Request) (*calls.Call, error) {
	c.keeper.RefreshIfDue(time.Now())
	return c.s.calls.Ask(ctx, func() *calls.Call {
		q := calls.NewDecide(c, key, requests...)
		last := requests[len(requests)-1] // the first may only read the state
		q.CountLate = c.o.Outage == FailOpen && last.Op == backend.OpTake && last.Max > 0 && !requests[0].Block
		return q
	})
}

// undo gives back what a request was granted.
func (c *core) undo(q *calls.Call, i int) {
	op := backend.OpRefund
	if q.Requests[i].Block {
		op = backend.OpReturnBlock
	}
	if n := q.Granted[i]; n > 0 {
		c.giveBack(op, q.Key, q.Definition, n, q.After[i].Receipt)
	}
}

// giveBack gives permits back in the background by op, which is OpRefund or OpReturnBlock. A block that cannot be
// returned is ignored: time restores its permits.
func (c *core) giveBack(op backend.Op, key string, def *backend.Definition, n int64, receipt rate.Receipt) {
	q := calls.NewDecide(c, key, backend.Request{Op: op, Max: n, Receipt: receipt})
	q.Definition = def
	q.OnAnswer = func() {
		switch {
		case op != backend.OpRefund:
		case q.Err == nil:
			c.learnLevel(q, q.Granted[0] > 0)
		default:
			c.s.report(Event{Kind: EventRefundLost, Limiter: c.name, Key: key, Permits: n, Err: q.Err})
		}
	}
	c.s.calls.Send(q)
}

// takeMore charges permits in the background. While the store is away it does nothing, because grants of the outage policy are not
// counted in the store either.
func (c *core) takeMore(key string, n int64, onAnswer func(q *calls.Call)) {
	q := calls.NewDecide(c, key, backend.Request{Op: backend.OpCharge, Max: n})
	q.OnAnswer = func() { onAnswer(q) }
	c.s.calls.Send(q)
}

// takeFromStore asks the store for n permits.
func (c *core) takeFromStore(ctx context.Context, key string, n int) (limiter.Lease, error) {
	q, err := c.ask(ctx, key, backend.Request{Min: int64(n), Max: int64(n)})
	if err != nil {
		return limiter.Lease{}, err
	}
	c.s.count.decisions.Add(1)
	return c.leaseFor(q, 0), nil
}

// leaseFor returns the answer to a request.
func (c *core) leaseFor(q *calls.Call, i int) limiter.Lease {
	n := q.Requests[i].Min
	switch {
	case q.Granted[i] == backend.Rejected:
		c.remember(q, n)
		return custom.RejectedKnowing(q.Wait(n), "", q.Definition.Free(&q.State))
	case n == 0:
		return custom.Granted(0, nil)
	}
	return c.newGrant(q, i)
}
