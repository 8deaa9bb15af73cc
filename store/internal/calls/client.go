package calls

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A Client makes the calls of all limiters of a process to one backend. It is safe for use by many goroutines.
type Client struct {
	link
	shards  shardTable
	returns giveBacks
}

// New returns a Client. Close closes the backend.
func New(b backend.Backend, o Options) *Client {
	c := &Client{link: link{backend: backend.Windowed(b), o: o, most: limitsOf(b)}}
	c.shards.link = &c.link
	if p, ok := b.(backend.Sharded); ok {
		c.shards.nameOf = p.ShardOf
	}
	c.shards.unknown = c.shards.newShard("")
	return c
}

// Ask sends the call that newCall makes, and waits for its answer. The error wraps [ErrUnavailable], or it is that of the
// context with a method Undecided, which returns true. If need be, Ask sends another one; see giveBacks.
func (c *Client) Ask(ctx context.Context, newCall func() *Call) (*Call, error) {
	q := newCall()
	sh := c.shards.of(q.Limiter.Name(), q.Key)
	if err := sh.check(); err != nil {
		return nil, Unavailable(err)
	}
	limit := c.Limit(ctx)
	returned := c.returns.before(q)
	if err := c.askOnce(ctx, sh, q, limit); err != nil || len(returned) == 0 || !q.tookNothing() {
		return q, err
	}
	for _, done := range returned {
		if Wait(ctx, limit, done) != nil {
			return q, nil //nolint:nilerr // the first answer holds
		}
	}
	second := newCall()
	if second.CountLate = false; c.askOnce(ctx, sh, second, limit) != nil {
		return q, nil //nolint:nilerr // the same
	}
	return second, nil
}

func (c *Client) askOnce(ctx context.Context, sh *shard, q *Call, limit time.Time) error {
	q.caller = caller{gone: ctx.Done(), done: make(chan struct{})}
	if q.CountLate {
		q.caller.since = time.Now()
	}
	if c.most.random != nil {
		q.caller.number = c.asked.Add(1)
	}
	sh.send(q)
	return q.await(ctx, limit)
}

// Send sends a call that no caller waits for, unless the store is away. If the call gives permits back, calls about the key
// that come after it find them there.
func (c *Client) Send(q *Call) {
	sh := c.shards.of(q.Limiter.Name(), q.Key)
	c.returns.begin(q)
	if err := sh.check(); err != nil {
		q.fail(err, false)
		return
	}
	sh.send(q)
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
	deterministic.Take(ctx) // others wait for the same
	return decided(ctx, err)
}

// Load returns the stored definition of that name, or nil if there is none, and the store's time.
func (c *Client) Load(name string) (found *backend.Definition, now int64, err error) {
	var at int64 // after an error, the backend can still write to it
	sh := c.shards.of(name, "")
	begun := sh.epoch()
	found, err = within(&c.link, func(ctx context.Context) (d *backend.Definition, err error) {
		d, at, err = c.backend.Load(ctx, name)
		if err == nil && d != nil && d.Kind != rate.Concurrency && d.Check() != nil {
			err = fmt.Errorf("%w: %w", backend.ErrDefinition, d.Check())
		}
		return d, err
	})
	if err != nil {
		sh.record(begun, err)
		return nil, 0, err
	}
	c.Made.Add(1) // not recorded: it does not show that the store can be written to
	return found, at, nil
}

// Define puts next in place of the stored definition of the version old, and reports whether it did; see
// [backend.Backend].
func (c *Client) Define(old int64, next *backend.Definition) (bool, error) {
	sh := c.shards.of(next.Name, "")
	begun := sh.epoch()
	defined, err := within(&c.link, func(ctx context.Context) (bool, error) { return c.backend.Define(ctx, old, next) })
	sh.record(begun, err)
	return defined && err == nil, err
}

// Listen calls [backend.Backend.Listen], and returns an error also if that panics or ends its goroutine.
func (c *Client) Listen(ready func(), notice func(backend.Notice)) error {
	err := errNoReturn
	recovered.Hook("store: Backend.Listen", func() { err = c.backend.Listen(c.o.Background.Context(), ready, notice) })
	return err
}

// MakeSource returns a source of random numbers: in a simulation that of the key, otherwise nil.
func (c *Client) MakeSource(name, key string) *deterministic.Source {
	if c.most.random == nil {
		return nil
	}
	return c.most.random.MakeSource(name, key)
}

// Settle is for the queue of a key before it looks at who waits. In a simulation it returns when all have joined, left or woken the
// queue that do so at this instant.
func (c *Client) Settle() { c.settle(0) }

func (c *Client) Close() error { return c.backend.Close() }

// Check returns why a key cannot be asked for now, or nil.
func (c *Client) Check(name, key string) error { return c.shards.of(name, key).check() }

// Probe makes a round trip like those for decisions and returns why it failed.
func (c *Client) Probe(ctx context.Context) error {
	sh := c.shards.unknown
	begun := sh.epoch()
	done := make(chan error, 1)
	c.o.Background.Go(func() { done <- c.probe(probeDefinition, "") })
	select {
	case err := <-done:
		sh.record(begun, err)
		return err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	case <-c.o.Background.Context().Done():
		return c.o.Background.Err()
	}
}

// ShardOf returns the name of the shard of a key, or "".
func (c *Client) ShardOf(name, key string) string { return c.shards.of(name, key).name }

// Health is the health of one shard.
type Health struct {
	Shard string    // "" for a backend without shards, and for keys whose shard is not known
	Err   error     // why it is away, or nil
	Since time.Time // when it was lost
}

// Health returns the health of all shards that were used so far, that with the name "" first.
func (c *Client) Health() (all []Health) {
	for sh := range c.shards.all {
		h := Health{Shard: sh.name}
		if o := sh.away.Load(); o != nil {
			h.Err, h.Since = o.err, o.since
		}
		all = append(all, h)
	}
	return all
}
