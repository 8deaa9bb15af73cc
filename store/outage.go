package store

import (
	"context"
	"sync"
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

// withoutStore answers by the outage policy; err is why the store could not be asked. With peek, nothing is taken or counted.
func (c *core) withoutStore(key string, n int, peek bool, err error) limiter.Lease {
	if !peek {
		c.s.count.outages.Add(1)
	}
	lease := custom.Rejected(c.s.o.ProbeInterval, limiter.ReasonUnavailable)
	switch c.o.Outage {
	case FailOpen:
		lease = custom.Granted(n, nil)
	case FallBackLocally:
		local := c.fallback.limiterOf(c)
		try := local.TryAcquire // callers wait in the queue of the shared limiter
		if peek {
			try = local.Peek
		}
		own, failed := try(context.Background(), key, n)
		switch {
		case failed != nil: // n is above the share, or the limiter was closed just now
		case own.Acquired() && c.leased && !peek:
			lease = custom.Granted(n, func() {
				own.Release()
				c.wakeKey(key)
			})
		default:
			lease = own
		}
	}
	return OutageKey.With(lease, err)
}

// A fallback has the limiter of FallBackLocally, which is made at its first use.
type fallback struct {
	mu      sync.Mutex
	limiter *limiter.PartitionedLimiter[string, string]
	limits  rate.Limits // the shared limits of which the limiter has its share
	closed  bool
}

// limiterOf returns the limiter for the limits in force. Limits of the same kind change the limiter in place, so that permits
// that are held or were granted in this window still count. For limits of another kind there is a new limiter, which starts
// full.
func (f *fallback) limiterOf(c *core) *limiter.PartitionedLimiter[string, string] {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, limits := f.limits, c.keeper.WithoutStore()
	if f.limiter != nil && (f.closed || was == limits) {
		return f.limiter
	}
	f.limits = limits
	if f.limiter != nil && was.Kind == limits.Kind {
		share := limits.Share(c.o.LocalShare)
		_ = f.limiter.Apply(func(_ string, l limiter.Limiter) error {
			_ = l.(limiter.Configurable).Reconfigure(share) // fails only if l is closed
			return nil
		})
		return f.limiter
	}
	if f.limiter != nil {
		_ = f.limiter.Close()
	}
	newOfKey := func(key string) (limiter.Limiter, error) {
		return limiter.FactoryFor[string](c.keeper.WithoutStore().Share(c.o.LocalShare))(key)
	}
	f.limiter, _ = limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: newOfKey}
	}, &limiter.PartitionedOptions{MaxPartitions: maxKeys})
	if f.closed {
		_ = f.limiter.Close()
	}
	return f.limiter
}

func (f *fallback) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.limiter != nil {
		_ = f.limiter.Close()
	}
}
