package calls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/answerby"
	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/random"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/rate"
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
	sh := c.shardOf(q.Limiter.Name(), q.Key)
	if err := sh.err(); err != nil {
		return nil, err
	}
	limit := c.Limit(ctx)
	returned := c.returns.before(q)
	if err := c.askOnce(ctx, sh, q, limit); err != nil || len(returned) == 0 || !q.tookNothing() {
		return q, err
	}
	for _, done := range returned {
		if _, err := waitUntil(done, q.gone, limit); err != nil {
			return q, nil //nolint:nilerr // the first answer holds
		}
	}
	second := newCall()
	if second.CountLate = false; c.askOnce(ctx, sh, second, limit) != nil {
		return q, nil
	}
	return second, nil
}

func (c *Client) askOnce(ctx context.Context, sh *shard, q *Call, limit time.Time) error {
	q.gone, q.done = ctx.Done(), make(chan struct{})
	if q.CountLate {
		q.made = time.Now()
	}
	sh.send(q)
	return q.await(ctx, limit)
}

// Send sends a call that no caller waits for, unless the store is away. If the call gives permits back, calls about the key
// that come after it find them there.
func (c *Client) Send(q *Call) {
	sh := c.shardOf(q.Limiter.Name(), q.Key)
	c.returns.begin(q)
	if err := c.check(sh); err != nil {
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
	sh := c.shardOf(next.Name, "")
	begun := sh.epoch()
	defined, err := within(c, func(ctx context.Context) (bool, error) { return c.backend.Define(ctx, old, next) })
	sh.record(begun, err)
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
	err := errNoReturn
	recovered.Hook("store: Backend.Listen", func() { err = c.backend.Listen(c.ctx, ready, notice) })
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

// A shard is a part of the store that fails separately: it has batchers, so that a slow shard does not delay calls about the
// keys of another one, and is a circuit breaker. While it is away, a call costs one atomic load, and one goroutine probes it.
type shard struct {
	c        *Client
	name     string // "" for a backend that is not sharded, and for keys whose shard is not known
	batchers [ops][maxBatchers]batcher

	away     atomic.Pointer[outage] // nil while the shard is there
	failed   atomic.Int64           // failures counted so far
	mu       sync.Mutex
	failures int // in a row
}

type outage struct {
	err   error
	since time.Time
}

func (c *Client) newShard(name string) *shard {
	sh := &shard{c: c, name: name}
	for i := range maxBatchers {
		for op := range ops {
			sh.batchers[op][i] = batcher{c: c, shard: sh, most: c.most.trips}
		}
		sh.batchers[Renew][i].most = 1
	}
	return sh
}

// err returns why the shard is away, or nil.
func (sh *shard) err() error {
	if o := sh.away.Load(); o != nil {
		return o.err
	}
	return nil
}

// An epoch is the number of failures when a call began. Calls that are under way together and fail together have one cause,
// such as a pause of the network, and count as one failure.
type epoch int64

func (sh *shard) epoch() epoch { return epoch(sh.failed.Load()) }

// record counts the end of a call.
func (sh *shard) record(begun epoch, err error) {
	c := sh.c
	c.Made.Add(1)
	switch {
	case err == nil:
		sh.mu.Lock()
		sh.failures = 0
		sh.mu.Unlock()
		return
	case errors.Is(err, backend.ErrDefinition): // the store has answered, but may refuse writes
		return
	}
	if c.Failed.Add(1); c.ctx.Err() == nil && sh.lose(begun, err) {
		c.o.Lost(sh.name, err)
		c.Go(sh.probeUntilBack)
	}
}

// lose counts a failure, unless another one was counted since the call began, and reports whether the shard counts as away
// because of it.
func (sh *shard) lose(begun epoch, err error) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.epoch() != begun {
		return false
	}
	sh.failed.Add(1)
	sh.failures++
	if sh.away.Load() != nil || sh.failures < sh.c.o.FailureThreshold {
		return false
	}
	if sh.name != "" {
		err = fmt.Errorf("%s: %w", sh.name, err)
	}
	sh.away.Store(&outage{err: Unavailable(err), since: time.Now()})
	return true
}

// probeUntilBack probes the shard until it is back, or has no keys any more.
func (sh *shard) probeUntilBack() {
	c, was := sh.c, sh.away.Load()
	for c.Sleep(time.Duration(float64(c.o.ProbeInterval) * (0.8 + 0.4*rand.Float64()))) {
		d, key, hasKeys := sh.target()
		if hasKeys {
			err := c.probe(d, key)
			if c.ctx.Err() != nil {
				return
			}
			if c.Made.Add(1); err != nil {
				c.Failed.Add(1)
				continue
			}
			_, _, hasKeys = sh.target()
		}
		if !hasKeys {
			c.shards.byName.CompareAndDelete(sh.name, sh) // its keys are in other shards now
		}
		sh.mu.Lock()
		sh.failures = 0
		sh.away.Store(nil)
		sh.mu.Unlock()
		c.o.Recovered(sh.name, time.Since(was.since))
		return
	}
}

// Probe makes a round trip like those for decisions and returns why it failed.
func (c *Client) Probe(ctx context.Context) error {
	sh := c.shards.unknown
	begun := sh.epoch()
	done := make(chan error, 1)
	c.Go(func() { done <- c.probe(probeDefinition, "") })
	select {
	case err := <-done:
		sh.record(begun, err)
		return err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// probe takes a permit, for which the store has to read and to write.
func (c *Client) probe(d *backend.Definition, key string) error {
	b, err := within(c, func(ctx context.Context) (*backend.Batch, error) {
		b := &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{{Min: 1, Max: 1}}, Granted: make([]int64, 1)}
		return b, c.backend.Decide(ctx, []*backend.Batch{b})
	})
	if err == nil && b.Outcome == backend.Unreachable {
		err = b.Err
	}
	return err
}

// probeDefinition is what probes take permits of: a bucket that is refilled each second and never used up. It is not stored in
// any backend.
var probeDefinition = &backend.Definition{
	Name: "weir/probe", Version: 1,
	Schedule: rate.Schedule{Kind: rate.TokenBucket, Permits: backend.MaxPermits, Refill: backend.MaxPermits, Period: 1e6},
}

// target returns a definition and a key in the shard, or false if it has none: then its keys are in other shards now. 16,384
// pairs of a name and a key are enough to find one in each of 1,000 shards that have about as many keys each.
func (sh *shard) target() (*backend.Definition, string, bool) {
	table := &sh.c.shards
	if table.nameOf == nil {
		return probeDefinition, "", true
	}
	for i := range 1 << 14 {
		d, key := *probeDefinition, strconv.Itoa(i%128)
		if i >= 128 {
			d.Name += "/" + strconv.Itoa(i/128)
		}
		if table.name(d.Name, key) == sh.name {
			return &d, key, true
		}
	}
	return nil, "", false
}

// A shardTable has the shards of a Client. The unknown one has the keys whose shard is not known.
type shardTable struct {
	unknown *shard
	nameOf  func(name, key string) string // nil if the backend is not sharded
	byName  sync.Map                      // name -> *shard, without the unknown one
	mu      sync.Mutex                    // held while a shard is added
	count   int                           // of the shards added since idle ones were forgotten
}

// forgetFrom is after how many new shards all are forgotten that are not away: some are servers that were replaced.
const forgetFrom = 1024

// name asks the backend. If that panics, the shard is not known.
func (t *shardTable) name(name, key string) (shard string) {
	recovered.Call("store: Backend.ShardOf", func() { shard = t.nameOf(name, key) })
	return shard
}

// all yields the unknown shard and then the others.
func (t *shardTable) all(yield func(*shard) bool) {
	if yield(t.unknown) {
		t.byName.Range(func(_, sh any) bool { return yield(sh.(*shard)) })
	}
}

// shardOf returns the shard of a key. The shard of the key "" has the limiter's definition, too.
func (c *Client) shardOf(name, key string) *shard {
	t := &c.shards
	if t.nameOf == nil {
		return t.unknown
	}
	shardName := t.name(name, key)
	if shardName == "" {
		return t.unknown
	}
	if sh, ok := t.byName.Load(shardName); ok {
		return sh.(*shard)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count++; t.count > forgetFrom {
		t.count = 0
		t.byName.Range(func(name, sh any) bool {
			if sh.(*shard).err() == nil {
				t.byName.Delete(name)
			}
			return true
		})
	}
	shardName = strings.Clone(shardName)
	sh, _ := t.byName.LoadOrStore(shardName, c.newShard(shardName))
	return sh.(*shard)
}

// ShardOf returns the name of the shard of a key, or "".
func (c *Client) ShardOf(name, key string) string { return c.shardOf(name, key).name }

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
