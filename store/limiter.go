package store

import (
	"context"

	"github.com/weir-go/weir/limiter"
)

// A Limiter is a [limiter.Limiter] whose permits are shared by all instances that have one
// of the same name; O is the type of its options. Its queue is this instance's own: those who
// wait in it are served in order, and between instances whoever asks first after something
// came back.
//
// It is safe for use by many goroutines. The zero Limiter is not usable: a [Store] makes
// them.
type Limiter[O options] struct{ c *core }

type (
	// TokenBucket is a shared token bucket.
	TokenBucket = Limiter[limiter.TokenBucketOptions]
	// FixedWindow is a shared fixed window.
	FixedWindow = Limiter[limiter.FixedWindowOptions]
	// SlidingWindow is a shared sliding window.
	SlidingWindow = Limiter[limiter.SlidingWindowOptions]
	// Concurrency is a shared concurrency limiter.
	Concurrency = Limiter[limiter.ConcurrencyOptions]
)

func newLimiter[O options](s *Store, name string, o O, how *LimiterOptions) (*Limiter[O], error) {
	c, err := newCore(s, name, o, how, false)
	if err != nil {
		return nil, err
	}
	return &Limiter[O]{c}, nil
}

// TryAcquire takes n permits if they are there now, by one question to the store at the most.
// With n == 0 it asks whether any is left.
//
// While the store is away the answer is what LimiterOptions.Outage says, with [OutageKey]. If ctx ends before the store
// has answered, the limiter has taken no decision: the error wraps the context's error and has a method
// Undecided() bool that returns true.
func (l *Limiter[O]) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.c.tryAcquire(ctx, "", n)
}

// Acquire takes n permits, and waits for them in this instance's queue where there is room.
// With n == 0 it waits until one is there.
//
// If ctx ends while Acquire waits in the queue, the error is the context's. If ctx ends before the store has answered,
// the error is that of [Limiter.TryAcquire].
func (l *Limiter[O]) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return l.c.acquire(ctx, "", n)
}

// Statistics is [Limiter.StatisticsContext] without a context. It takes at most
// Options.CallTimeout.
func (l *Limiter[O]) Statistics() limiter.Statistics {
	return l.c.statistics(context.Background(), "")
}

// StatisticsContext asks the store how many permits are available. If the store is away, does
// not answer within Options.CallTimeout, or ctx ends first, AvailablePermits is computed from
// what the store last said. With a context that has ended it returns at once, without a
// round trip. The other figures are this instance's own.
func (l *Limiter[O]) StatisticsContext(ctx context.Context) limiter.Statistics {
	return l.c.statistics(ctx, "")
}

// Reconfigure changes the limits for all instances. What was granted stays granted, and other
// instances follow at once for what they ask about again, at the latest after
// Options.RefreshInterval. QueueLimit and QueueOrder are this instance's own. It usually takes
// two round trips, and at most ten times Options.CallTimeout.
//
// The error is a [weir.ErrInvalidOptions], [limiter.ErrClosed] or [ErrUnavailable], and
// then nothing has changed.
func (l *Limiter[O]) Reconfigure(o O) error { return l.c.reconfigure(o) }

// ReconfigureLater is Reconfigure that does not wait: the store is told in the background, or
// when it is back, unless other limits are wanted by then or the limiter is closed. Limits that another
// instance has set since ReconfigureLater was called stay, which the event [EventOverruled] reports. Until then
// the limits are what they were, here, too; the queue is changed at once.
//
// The error is a [weir.ErrInvalidOptions] or [limiter.ErrClosed].
func (l *Limiter[O]) ReconfigureLater(o O) error { return l.c.reconfigureLater(o) }

// Options returns the limits in force, as far as this instance knows.
func (l *Limiter[O]) Options() O { return optionsOf[O](l.c) }

// Close closes the limiter in this instance: who waits comes back rejected, and later calls
// return [limiter.ErrClosed]. Leases that are out stay valid and are renewed until they are
// released or the [Store] is closed. A limiter of the same name can be made anew then. It may
// be called again.
func (l *Limiter[O]) Close() error {
	l.c.close()
	return nil
}
