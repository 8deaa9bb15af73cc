package store

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// An OutagePolicy is what a limiter does while its store is away, which is between [EventStoreLost] and
// [EventStoreRecovered], and for single calls that fail. It is written "fail_closed", "fail_open" or
// "fall_back_locally" in configuration files.
type OutagePolicy uint8

// The outage policies.
const (
	// FailClosed rejects with [limiter.ReasonUnavailable], so the limit always holds. It is the zero value.
	FailClosed OutagePolicy = iota
	// FailOpen grants everything, so no caller is rejected because of the store.
	FailOpen
	// FallBackLocally asks a limiter in the process that has LimiterOptions.LocalShare of the limit. The limiter starts
	// full. New limits change it in place, so permits that it has granted still count.
	FallBackLocally
)

var outages = textenum.Texts[OutagePolicy]{Package: "store", Type: "OutagePolicy", Texts: []string{
	FailClosed: "fail_closed", FailOpen: "fail_open", FallBackLocally: "fall_back_locally",
}}

// String returns the text form, or OutagePolicy(n) if o is unknown.
func (o OutagePolicy) String() string { return outages.String(o) }

// MarshalText implements [encoding.TextMarshaler].
func (o OutagePolicy) MarshalText() ([]byte, error) { return outages.Marshal(o) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *OutagePolicy) UnmarshalText(text []byte) error { return outages.Unmarshal(o, text) }

// withoutStore answers by the outage policy; err is why the store could not be asked.
func (c *core) withoutStore(key string, n int, err error) limiter.Lease {
	c.s.count.outages.Add(1)
	lease := limiter.Rejected(c.s.o.ProbeInterval, limiter.ReasonUnavailable)
	switch c.o.Outage {
	case FailOpen:
		lease = limiter.Granted(n, nil)
	case FallBackLocally:
		lease = c.fallback.ask(c, key, n)
	}
	return OutageKey.With(lease, err)
}

// fallback has the limiter of FallBackLocally. The zero value makes it at its first use.
type fallback struct {
	changing sync.Mutex // held while the limits of by change; taken before mu

	mu     sync.Mutex
	of     backend.Limits // the limits that by has
	by     *limiter.PartitionedLimiter[string, string]
	makes  atomic.Pointer[limiter.Factory[string]] // what by makes its partitions with
	closed bool
}

// ask does not wait: callers wait in the shared limiter's queue.
func (f *fallback) ask(c *core, key string, n int) limiter.Lease {
	by := f.limiter(c)
	if by == nil {
		return limiter.Rejected(0, limiter.ReasonClosed)
	}
	lease, err := by.TryAcquire(context.Background(), key, n)
	if err != nil { // n is above the share, or the limiter was closed just now
		return limiter.Rejected(c.s.o.ProbeInterval, limiter.ReasonUnavailable)
	}
	if !lease.Acquired() || !c.leased {
		return lease
	}
	return limiter.Granted(n, func() {
		lease.Release()
		c.wake(key)
	})
}

// limiter returns the limiter for the limits in force. Limits of the same kind change it in place, so that permits that
// are held or were granted in this window still count. Limits of another kind start full.
func (f *fallback) limiter(c *core) *limiter.PartitionedLimiter[string, string] {
	if by, ready := f.ready(c.limits()); ready {
		return by
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	by, change := f.use(c.limits(), c.o.LocalShare)
	if change != nil {
		_ = by.Apply(change) // outside of mu: there can be many keys
	}
	return by
}

// ready reports whether the limiter has those limits, or fallback is closed.
func (f *fallback) ready(limits backend.Limits) (by *limiter.PartitionedLimiter[string, string], ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by, f.has(limits)
}

func (f *fallback) has(limits backend.Limits) bool { return f.closed || f.by != nil && f.of == limits }

// use switches to those limits. change, if not nil, must be applied to the existing partitions.
func (f *fallback) use(limits backend.Limits, localShare float64) (by *limiter.PartitionedLimiter[string, string], change func(string, limiter.Limiter) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has(limits) {
		return f.by, nil
	}
	share := shareOf(limits, localShare)
	factory := share.factory()
	f.makes.Store(&factory)
	kept := f.by != nil && f.of.Kind == limits.Kind
	f.of = limits
	if kept {
		return f.by, func(_ string, l limiter.Limiter) error {
			share.reconfigure(l)
			return nil
		}
	}
	if f.by != nil {
		_ = f.by.Close()
	}
	f.by, _ = limiter.NewPartitioned(func(key string) limiter.Partition[string] {
		return limiter.Partition[string]{Key: key, New: *f.makes.Load()}
	}, &limiter.PartitionedOptions{MaxPartitions: maxKeys})
	return f.by, nil
}

func (f *fallback) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.by != nil {
		_ = f.by.Close()
	}
	f.by = nil
}

// A share is a part of some limits, as the options of a limiter in the process.
type share struct{ options any }

// shareOf returns a part of l. No number is below 1; where a part of a refill would be, the period becomes longer
// instead.
func shareOf(l backend.Limits, part float64) share {
	permits := toInt(int64(max(float64(l.Permits)*part, 1)))
	period := time.Duration(l.Period) * time.Microsecond
	switch l.Kind {
	case backend.KindTokenBucket:
		refill := float64(l.Refill) * part
		if refill < 1 {
			period = time.Duration(min(float64(period)/refill, math.MaxInt64/2))
		}
		return share{limiter.TokenBucketOptions{
			TokenLimit: permits, TokensPerPeriod: toInt(int64(max(refill, 1))), ReplenishmentPeriod: period,
		}}
	case backend.KindFixedWindow:
		return share{limiter.FixedWindowOptions{PermitLimit: permits, Window: period}}
	case backend.KindSlidingWindow:
		return share{limiter.SlidingWindowOptions{
			PermitLimit: permits, Window: period * time.Duration(l.Segments), SegmentsPerWindow: toInt(l.Segments),
		}}
	default:
		return share{limiter.ConcurrencyOptions{PermitLimit: permits}}
	}
}

func (sh share) factory() limiter.Factory[string] {
	switch o := sh.options.(type) {
	case limiter.TokenBucketOptions:
		return limiter.TokenBucketFactory[string](o)
	case limiter.FixedWindowOptions:
		return limiter.FixedWindowFactory[string](o)
	case limiter.SlidingWindowOptions:
		return limiter.SlidingWindowFactory[string](o)
	default:
		return limiter.ConcurrencyFactory[string](sh.options.(limiter.ConcurrencyOptions))
	}
}

// reconfigure changes a limiter that was made for a share of the same kind. It fails only if l is closed, which does
// not matter.
func (sh share) reconfigure(l limiter.Limiter) {
	switch l := l.(type) {
	case *limiter.TokenBucket:
		_ = l.Reconfigure(sh.options.(limiter.TokenBucketOptions))
	case *limiter.FixedWindow:
		_ = l.Reconfigure(sh.options.(limiter.FixedWindowOptions))
	case *limiter.SlidingWindow:
		_ = l.Reconfigure(sh.options.(limiter.SlidingWindowOptions))
	case *limiter.Concurrency:
		_ = l.Reconfigure(sh.options.(limiter.ConcurrencyOptions))
	}
}
