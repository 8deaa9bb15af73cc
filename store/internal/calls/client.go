package calls

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/internal/random"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/store/backend"
)

// A Client makes the calls of all limiters of a process to one backend. It is safe for use by many goroutines.
type Client struct {
	backend backend.Backend
	o       Options
	most    limits
	shards  shardTable
	returns giveBacks

	// Made counts the round trips for decisions, leases and definitions, and Failed those of them that failed.
	Made, Failed atomic.Int64

	ctx        context.Context // ends with Close
	cancel     context.CancelCauseFunc
	background sync.WaitGroup // the goroutines of Go
	mu         sync.Mutex
	closing    bool          // Go starts no goroutine any more
	underWay   atomic.Int64  // what WaitIdle waits for
	idle       chan struct{} // one signal: underWay has become 0
}

// Options are what a Client is made with. All are required.
type Options struct {
	Timeout          time.Duration // bounds a round trip, and the time that a caller waits for its answer
	FailureThreshold int           // how many round trips in a row must fail before a shard counts as away
	ProbeInterval    time.Duration // between two probes of a shard that is away
	// Lost and Recovered are called when a shard begins and ceases to count as away.
	Lost      func(shard string, err error)
	Recovered func(shard string, away time.Duration)
}

// New returns a Client. Close closes the backend.
func New(b backend.Backend, o Options) *Client {
	c := &Client{backend: backend.Windowed(b), o: o, most: limitsOf(b), idle: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	if p, ok := b.(backend.Sharded); ok {
		c.shards.nameOf = p.ShardOf
	}
	c.shards.unknown = c.newShard("")
	return c
}

// Ask sends the call that newCall makes, and waits for its answer. The error wraps [ErrUnavailable], or it is that of the
// context with a method Undecided, which returns true. If need be, Ask sends another one; see giveBacks.
func (c *Client) Ask(ctx context.Context, newCall func() *Call) (*Call, error) {
	q := newCall()
	q.shard = c.shardOf(q.Limiter.Name(), q.Key)
	if err := q.shard.err(); err != nil {
		return nil, err
	}
	limit := c.Limit(ctx)
	returned := c.returns.before(q)
	if err := c.askOnce(ctx, q, limit); err != nil || returned == nil || !q.tookNothing() {
		return q, err
	}
	if _, err := waitUntil(returned, q.gone, limit); err == nil {
		second := newCall()
		second.shard, second.CountLate = q.shard, false
		if c.askOnce(ctx, second, limit) == nil {
			return second, nil
		}
	}
	return q, nil // the second answer did not come in time
}

func (c *Client) askOnce(ctx context.Context, q *Call, limit time.Time) error {
	q.gone, q.done = ctx.Done(), make(chan struct{})
	if q.CountLate {
		q.made = time.Now()
	}
	c.send(q)
	return q.await(ctx, limit)
}

// Send sends a call that no caller waits for, unless the store is away. If the call gives permits back, calls about the key
// that come after it find them there.
func (c *Client) Send(q *Call) {
	q.shard = c.shardOf(q.Limiter.Name(), q.Key)
	q.returns = c.returns.begin(q)
	if err := c.check(q.shard); err != nil {
		q.fail(err, false)
		return
	}
	c.send(q)
}

func (c *Client) send(q *Call) {
	if q.Limiter.Definition() == nil {
		c.repair([]*group{{calls: []*Call{q}}})
	} else {
		q.shard.batchers[q.Op][c.batcherOf(q)].add(q)
	}
}

// Limit returns until when a caller waits for the store: for the timeout, or less if package answerby says so. The round trip
// goes on: a store that pauses for less than the timeout does not count as away.
func (c *Client) Limit(ctx context.Context) time.Time {
	limit := time.Now().Add(c.o.Timeout)
	if t, ok := answerby.Of(ctx); ok && t.Before(limit) {
		return t
	}
	return limit
}

// Wait returns nil when done is closed, or an error like that of Ask if ctx or limit ends before.
func Wait(ctx context.Context, limit time.Time, done <-chan struct{}) error {
	_, err := waitUntil(done, ctx.Done(), limit)
	return decided(ctx, err)
}

// Load returns the stored definition of that name, or nil if there is none, and the store's time.
func (c *Client) Load(name string) (found *backend.Definition, now int64, err error) {
	var at int64 // after an error, the backend can still write to it
	sh := c.shardOf(name, "")
	begun := sh.epoch()
	found, err = within(c, func(ctx context.Context) (d *backend.Definition, err error) {
		d, at, err = c.backend.Load(ctx, name)
		return d, err
	})
	if sh.record(load, begun, err); err != nil {
		return nil, 0, err
	}
	return found, at, nil
}

// Define puts next in place of the stored definition of the version old, and reports whether it did; see
// [backend.Backend].
func (c *Client) Define(old int64, next *backend.Definition) (bool, error) {
	sh := c.shardOf(next.Name, "")
	begun := sh.epoch()
	defined, err := within(c, func(ctx context.Context) (bool, error) { return c.backend.Define(ctx, old, next) })
	sh.record(define, begun, err)
	return defined && err == nil, err
}

// within calls the backend and returns after the timeout at the latest, even if the backend does not, panics, or ends its
// goroutine.
func within[T any](c *Client, f func(ctx context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.o.Timeout)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		r := result{err: errNoReturn}
		defer func() { done <- r }()
		recovered.Call("store: Backend", func() { r.v, r.err = f(ctx) })
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return result{}.v, errTimeout
	}
}

// Listen calls [backend.Backend.Listen], and returns an error also if that panics or ends its goroutine.
func (c *Client) Listen(ready func(), notice func(backend.Notice)) error {
	err := recovered.Error(func() error { return c.backend.Listen(c.ctx, ready, notice) })
	if p, ok := errors.AsType[*recovered.PanicError](err); ok {
		recovered.Report("store: Backend.Listen", p.Value, p.Stack)
	}
	return err
}

// MakeSource returns a source of random numbers: in a simulation that of the key, otherwise nil.
func (c *Client) MakeSource(name, key string) *random.Source {
	if c.most.random == nil {
		return nil
	}
	return c.most.random.MakeSource(name, key)
}

// Context ends with Close.
func (c *Client) Context() context.Context { return c.ctx }

// Go runs f on a goroutine that Close waits for. f must return soon after Context has ended. If Close waits for the
// goroutines already, f is not run.
func (c *Client) Go(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		c.background.Go(f)
	}
}

// Sleep reports whether d has passed; false means that the Client was closed.
func (c *Client) Sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// Begin makes WaitIdle wait until End is called.
func (c *Client) Begin() { c.underWay.Add(1) }

// End is called once for each Begin.
func (c *Client) End() {
	if c.underWay.Add(-1) == 0 {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
}

// WaitIdle waits until all calls are answered, or until limit.
func (c *Client) WaitIdle(limit time.Time) {
	timeout := time.NewTimer(time.Until(limit))
	defer timeout.Stop()
	for c.underWay.Load() > 0 {
		select {
		case <-c.idle:
		case <-timeout.C:
			return
		}
	}
}

// Close ends all calls and the goroutines of Go, and closes the backend. Later calls fail with the reason.
func (c *Client) Close(reason error) error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.cancel(reason)
	c.background.Wait()
	return c.backend.Close()
}

// check returns why the shard cannot be called, or nil.
func (c *Client) check(sh *shard) error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	return sh.err()
}

// Check returns why a key cannot be asked for now, or nil.
func (c *Client) Check(name, key string) error { return c.check(c.shardOf(name, key)) }
