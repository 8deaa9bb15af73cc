package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/rate"
)

// An OutagePolicy is how a limiter answers without the store: while the store is away, between [EventStoreLost] and
// [EventStoreRecovered], and when a single call fails. It is written "fail_closed", "fail_open" or "fall_back_locally"
// in configuration files.
type OutagePolicy uint8

// The outage policies.
const (
	// FailClosed rejects with [limiter.ReasonUnavailable], so the limit always holds. It is the zero value.
	FailClosed OutagePolicy = iota
	// FailOpen grants everything, so no caller is rejected because of the store. A request whose answer is late counts in
	// the store nevertheless, if it can be sent within Options.CallTimeout.
	FailOpen
	// FallBackLocally asks a limiter in the process that has LimiterOptions.LocalShare of the limit. The limiter starts
	// full. New limits change it in place, so permits that it has granted still count.
	FallBackLocally
)

// OutageKey is the metadata key on every lease of a shared limiter, granted or rejected, that was decided without the
// store. Its value is the reason.
var OutageKey = limiter.NewMetadataKey[error]("STORE_OUTAGE")

var outages = textenum.Texts[OutagePolicy]{Package: "store", Type: "OutagePolicy", Texts: []string{
	FailClosed: "fail_closed", FailOpen: "fail_open", FallBackLocally: "fall_back_locally",
}}

// String returns the text form, or OutagePolicy(n) if o is unknown.
func (o OutagePolicy) String() string { return outages.String(o) }

// MarshalText implements [encoding.TextMarshaler].
func (o OutagePolicy) MarshalText() ([]byte, error) { return outages.Marshal(o) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *OutagePolicy) UnmarshalText(text []byte) error { return outages.Unmarshal(o, text) }

// lost is called when a shard begins to count as away. The outage policy answers waiting callers, too.
func (s *Store) lost(shard string, err error) {
	s.report(Event{Kind: EventStoreLost, Shard: shard, Err: err})
	s.wakeQueues(&shard)
}

// recovered is called when a shard is there again.
func (s *Store) recovered(shard string, away time.Duration) {
	s.report(Event{Kind: EventStoreRecovered, Shard: shard, Away: away})
	s.wakeQueues(&shard)
	s.calls.Go(func() { s.catchUp(false) }) // the store may have lost definitions
}

// withoutStore answers by the outage policy; err is why the store could not be asked.
func (c *core) withoutStore(key string, n int, err error) limiter.Lease {
	c.s.count.outages.Add(1)
	return c.byOutagePolicy(n, err, func() limiter.Lease { return c.fallback.ask(c, key, n) })
}

// byOutagePolicy returns the answer of the outage policy; locally returns that of FallBackLocally.
func (c *core) byOutagePolicy(n int, err error, locally func() limiter.Lease) limiter.Lease {
	lease := custom.Rejected(c.s.o.ProbeInterval, limiter.ReasonUnavailable)
	switch c.o.Outage {
	case FailOpen:
		lease = custom.Granted(n, nil)
	case FallBackLocally:
		lease = locally()
	}
	return OutageKey.With(lease, err)
}

// A fallback has the limiter of FallBackLocally. The zero value makes it at its first use.
type fallback struct {
	changing sync.Mutex // held while the limits of the limiter change; taken before mu

	mu      sync.Mutex
	limiter *limiter.PartitionedLimiter[string, string]
	limits  rate.Limits                             // the shared limits of which the limiter has its share
	factory atomic.Pointer[limiter.Factory[string]] // makes the limiter of a key; read without mu
	closed  bool
}

// ask does not wait: callers wait in the shared limiter's queue.
func (f *fallback) ask(c *core, key string, n int) limiter.Lease {
	local := f.current(c)
	if local == nil {
		return custom.Rejected(0, limiter.ReasonClosed)
	}
	lease, err := local.TryAcquire(context.Background(), key, n)
	if err != nil { // n is above the share, or the limiter was closed just now
		return custom.Rejected(c.s.o.ProbeInterval, limiter.ReasonUnavailable)
	}
	if !lease.Acquired() || !c.leased {
		return lease
	}
	return custom.Granted(n, func() {
		lease.Release()
		c.wakeKey(key)
	})
}

// current returns the limiter for the limits in force, or nil if the fallback is closed. Limits of the same kind change
// the limiter in place, so that permits that are held or were granted in this window still count. For limits of another
// kind there is a new limiter, which starts full.
func (f *fallback) current(c *core) *limiter.PartitionedLimiter[string, string] {
	f.mu.Lock()
	local, ready := f.limiter, f.has(c.keeper.WithoutStore())
	f.mu.Unlock()
	if ready {
		return local
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	local, change := f.changeTo(c.keeper.WithoutStore(), c.o.LocalShare)
	if change != nil {
		_ = local.Apply(change) // without mu: there can be many keys
	}
	return local
}

func (f *fallback) has(limits rate.Limits) bool {
	return f.closed || f.limiter != nil && f.limits == limits
}

// changeTo returns a limiter whose new keys have the limits. If change is not nil, the caller must apply it to the keys
// that exist.
func (f *fallback) changeTo(limits rate.Limits, share float64) (local *limiter.PartitionedLimiter[string, string], change func(string, limiter.Limiter) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has(limits) {
		return f.limiter, nil
	}
	to := limits.Share(share)
	factory := limiter.FactoryFor[string](to)
	f.factory.Store(&factory)
	sameKind := f.limiter != nil && f.limits.Kind == limits.Kind
	f.limits = limits
	if sameKind {
		return f.limiter, func(_ string, l limiter.Limiter) error {
			_ = l.(limiter.Configurable).Reconfigure(to) // fails only if l is closed
			return nil
		}
	}
	if f.limiter != nil {
		_ = f.limiter.Close()
	}
	f.limiter, _ = limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: *f.factory.Load()}
	}, &limiter.PartitionedOptions{MaxPartitions: maxKeys})
	return f.limiter, nil
}

func (f *fallback) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.limiter != nil {
		_ = f.limiter.Close()
	}
	f.limiter = nil
}
