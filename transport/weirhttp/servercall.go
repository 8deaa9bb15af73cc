package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/clock"
	"github.com/weir-go/weir/limiter"
)

// A call is one request on one route. It is the request's context, too: that way
// the leases in the context cost no allocation of their own.
type call struct {
	context.Context // the one that the request came with

	route     *route
	request   *http.Request
	first     int32 // the policy with which it began
	listening bool
	measuring bool
	over      bool // the handler has returned: nothing is taken any more; under mu

	mu   sync.Mutex
	held []grant
	few  [2]grant // room for held, as most routes have one policy or two
}

// A grant is what a policy has granted to a call.
type grant struct {
	policy   *policy
	lease    limiter.Lease
	key      string        // what Policy.Key returned, if the policy is Partitioned
	since    time.Duration // on sinceStart's clock if the call is measured, or extra
	begun    any           // what BeginMeasurement of a [pipeline.LeaseMeasurer] returned
	charging *charging     // not nil while Charge corrects the lease
}

// extra is the since of what [Charge] has taken: it is not another lease.
const extra time.Duration = -1

type callKey struct{}

// Value returns the call itself to those who look for one.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// String does not look at what changes: fmt would, and race with Charge.
func (c *call) String() string { return fmt.Sprintf("%v.weirhttp", c.Context) }

// callOf returns the innermost call that the context belongs to, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// outer returns the call around this one, or nil.
func (c *call) outer() *call { return callOf(c.Context) }

// askedGlobally tells whether a handler further out has asked the same global
// limiter about this request.
func (c *call) askedGlobally() bool {
	for o := c.outer(); o != nil; o = o.outer() {
		if o.route.limits == c.route.limits {
			return true
		}
	}
	return false
}

// serve asks the policies from the i-th on, and then the handler.
func (c *call) serve(w http.ResponseWriter, r *http.Request, i int) {
	for ; i < len(c.route.policies); i++ {
		p := c.route.policies[i]
		if p.through != nil {
			c.serveThrough(w, r, i)
			return
		}
		key, rejection, ok := c.take(p, r)
		if !ok {
			c.turnAway(w, r, p, key, rejection)
			return
		}
	}
	if c.route.told {
		c.tell(w, r)
	}
	if c.route.timed != nil {
		c.serveTimed(w, r)
		return
	}
	c.route.next.ServeHTTP(w, r)
}

// take asks one policy. If ok is false, the request is to be turned away. key is what
// Policy.Key returned, which is called once.
func (c *call) take(p *policy, r *http.Request) (key string, rejection Rejection, ok bool) {
	ctx := r.Context()
	n := 1
	if p.Cost != nil {
		n = p.Cost(r)
	}
	if p.Partitioned != nil {
		key = p.Key(r)
	}
	var asked, answered time.Duration
	if c.measuring {
		asked = clock.Now()
	}
	lease, err := p.acquire(ctx, r, key, n)
	if c.measuring {
		answered = clock.Now()
	}
	// The permits are given back by end from here on, also if a Measurer panics.
	switch {
	case err != nil:
		lease.Release() // a limiter of the program may have granted permits and returned an error
	case lease.Acquired():
		c.hold(grant{policy: p, lease: lease, key: key, since: answered})
	}
	if c.measuring {
		c.measureRequest(ctx, p, answered-asked, answered, lease, err)
	}
	switch {
	case err != nil:
		rejection, ok = c.failed(ctx, p, n, err)
	case !lease.Acquired():
		rejection, ok = c.rejected(ctx, p, lease)
	default:
		ok = true
	}
	return key, rejection, ok
}

func (c *call) hold(g grant) {
	c.mu.Lock()
	c.held = append(c.held, g)
	c.mu.Unlock()
}

// end gives everything back when the handler has returned.
func (c *call) end() {
	c.mu.Lock()
	held := leave(c.held, false)
	c.held, c.over = nil, true
	c.mu.Unlock()
	c.release(held)
}

// leave returns those of the grants that Charge is not correcting at the moment. A
// correction under way gives its lease back when it is done: it may be running a
// function of the program, so nothing waits for it. The call's mu is locked.
func leave(grants []grant, undo bool) []grant {
	rest := grants[:0]
	for i := range grants {
		if x := grants[i].charging; x != nil {
			x.gone, x.undo = true, undo
			continue
		}
		rest = append(rest, grants[i])
	}
	return rest
}

// release goes on with the rest when a lease panics.
func (c *call) release(held []grant) {
	if len(held) == 0 {
		return
	}
	last := len(held) - 1
	if last > 0 {
		defer c.release(held[:last])
	}
	g := &held[last]
	defer c.measureLease(g)
	g.lease.Release()
}

// cut removes the grants after the first keep ones from the call and returns them.
func (c *call) cut(keep int, undo bool) []grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if keep >= len(c.held) {
		return nil
	}
	gone := leave(append([]grant(nil), c.held[keep:]...), undo)
	c.held = c.held[:keep]
	return gone
}

// giveBack undoes, in reverse, everything that was granted, as if it had not been taken.
func (c *call) giveBack() {
	c.undo(c.cut(0, true))
}

// undo goes on with the rest when a lease panics.
func (c *call) undo(granted []grant) {
	if len(granted) == 0 {
		return
	}
	last := len(granted) - 1
	defer c.undo(granted[:last])
	defer c.measureLease(&granted[last])
	undo(granted[last].lease)
}
