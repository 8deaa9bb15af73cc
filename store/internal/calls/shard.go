package calls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A shard is a part of the store that fails separately: it has batchers, so that a slow shard does not delay calls about the
// keys of another one, and is a circuit breaker. While it is away, a call costs one atomic load, and one goroutine probes it.
//
// An error that wraps [backend.ErrSetup] is no matter of chance: the shard counts as away at once, although calls that need
// less still succeed, and until a probe has done what failed. Otherwise the outage would end with the next probe and begin
// again.
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
	op    Op // what has failed
}

// For a shard, calls about definitions are operations, too.
const (
	define = ops + iota
	load
)

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
func (sh *shard) record(op Op, begun epoch, err error) {
	c := sh.c
	c.Made.Add(1)
	switch {
	case err == nil && op == load: // it does not show that the store can be written to
		return
	case err == nil:
		sh.mu.Lock()
		sh.failures = 0
		sh.mu.Unlock()
		return
	case errors.Is(err, backend.ErrDefinition): // the store has answered, but may refuse writes
		return
	}
	if c.Failed.Add(1); c.ctx.Err() == nil && sh.lose(op, begun, err) {
		c.o.Lost(sh.name, err)
		c.Go(sh.probeUntilBack)
	}
}

// lose counts a failure, unless another one was counted since the call began, and reports whether the shard counts as away
// because of it.
func (sh *shard) lose(op Op, begun epoch, err error) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.epoch() != begun {
		return false
	}
	sh.failed.Add(1)
	sh.failures++
	setup := op < ops && errors.Is(err, backend.ErrSetup)
	if sh.away.Load() != nil || !setup && sh.failures < sh.c.o.FailureThreshold {
		return false
	}
	if sh.name != "" {
		err = fmt.Errorf("%s: %w", sh.name, err)
	}
	sh.away.Store(&outage{err: Unavailable(err), since: time.Now(), op: op})
	return true
}

// probeUntilBack probes the shard until it is back, or has no keys any more.
func (sh *shard) probeUntilBack() {
	c, was := sh.c, sh.away.Load()
	for c.Sleep(time.Duration(float64(c.o.ProbeInterval) * (0.8 + 0.4*rand.Float64()))) {
		d, key, hasKeys := sh.target()
		if hasKeys {
			err := c.probe(d, key, was.op)
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
	c.Go(func() {
		_, err := c.probeRequest(probeDefinition, "", backend.Request{Min: 1, Max: 1})
		done <- err
	})
	select {
	case err := <-done:
		sh.record(Decide, begun, err)
		return err
	case <-ctx.Done():
		return ctxerr.Of(ctx)
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// probe does what op needs, because another call can succeed that needs less: the store may be slow for it, or forbid it. It
// takes a permit and gives all back, or it takes a lease and does op with it; a lease that is not released ends after a second.
func (c *Client) probe(d *backend.Definition, key string, op Op) error {
	if op == Acquire || op == Renew || op == Release {
		return c.probeLease(d, key, op)
	}
	taken, err := c.probeRequest(d, key, backend.Request{Min: 1, Max: 1})
	if err == nil {
		// Unlike OpRefund, it leaves nothing to remember. So the key is deleted, for which a store can need another right.
		all := backend.Request{Op: backend.OpReturnBlock, Max: taken.State.Missing, Receipt: d.Receipt(&taken.State)}
		_, err = c.probeRequest(d, key, all)
	}
	return err
}

func (c *Client) probeRequest(d *backend.Definition, key string, r backend.Request) (*backend.Batch, error) {
	return within(c, func(ctx context.Context) (*backend.Batch, error) {
		b := &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{r}, Granted: make([]int64, 1)}
		return b, probed(c.backend.Decide(ctx, []*backend.Batch{b}), &b.Outcome, &b.Err)
	})
}

func (c *Client) probeLease(d *backend.Definition, key string, op Op) error {
	lending := *d
	lending.Schedule = rate.Schedule{Kind: rate.Concurrency, Permits: backend.MaxPermits}
	r := &backend.LeaseRequest{
		Definition: &lending, Key: key, ID: "probe", Permits: 1, TTL: time.Second.Microseconds(),
	}
	for _, op := range slices.Compact([]Op{Acquire, op}) {
		_, err := within(c, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, probed(c.callLease(ctx, op, []*backend.LeaseRequest{r}), &r.Outcome, &r.Err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// probed returns the error of a call with one answer.
func probed(err error, outcome *backend.Outcome, reason *error) error {
	if err == nil && *outcome == backend.Unreachable {
		err = reasonOf(*reason)
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
