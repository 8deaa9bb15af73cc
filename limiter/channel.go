package limiter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/internal/waitlist"
)

// ErrChannelFull is returned by [Channel.TrySend] when the buffer has no room and no receiver is waiting.
var ErrChannelFull = errors.New("limiter: channel full")

// errChannelClosed is [ErrClosed] with another text.
var errChannelClosed = fmt.Errorf("%w: channel", ErrClosed)

// SendRejectedError is returned by [Channel.Send] and [Channel.TrySend] when the limiter rejected the item. Get it with
// [errors.AsType].
type SendRejectedError struct {
	// Lease is the limiter's answer, with its RetryAfter and its Reason.
	Lease Lease
}

// Error returns [Lease.String] after "limiter: ".
func (e *SendRejectedError) Error() string { return "limiter: " + e.Lease.String() }

// RetryAfter returns the lease's RetryAfter, for which a retry strategy waits. ok is false if it is not known.
func (e *SendRejectedError) RetryAfter() (time.Duration, bool) { return e.Lease.RetryAfter() }

// NotCalled returns true: the item was not sent, so a circuit breaker around the send does not count the error.
func (e *SendRejectedError) NotCalled() bool { return true }

// A Channel is a channel whose senders are limited by a [Limiter]. Each item costs one permit, or [ChannelOptions.Cost]
// permits, which are released when the item is received. With a [Concurrency] limiter, which several channels can
// share, the number of items on their way is limited; with a window or a bucket, the number of items sent in each
// period is limited. What the receiver does with an item is not limited.
//
// Most senders should use [Channel.Send], which waits, and most receivers should range over [Channel.All]. Items are
// received in the order in which they were sent. If a send fails, because the context ended, the channel was closed or
// there was no room, the item is not delivered, and its permits are given back by [Lease.Refund].
//
// A Channel has no goroutine, and never closes its limiter. Make one with [NewChannel]; the zero Channel is a closed
// one. All methods are safe for concurrent use.
type Channel[T any] struct {
	limiter  Limiter
	capacity int
	cost     func(T) int    // nil: 1 each
	closing  *closeNotifier // nil in a zero Channel

	mu        sync.Mutex
	buffer    channelBuffer[T]
	senders   waitlist.List[handover[T]] // only while the buffer is full
	receivers waitlist.List[handover[T]] // only while there is nothing to receive
}

// ChannelOptions are the options of a [Channel]. The zero value has the defaults.
type ChannelOptions[T any] struct {
	// Cost returns how many permits an item costs, such as its size. It is called once in each Send and TrySend, on the
	// sender's goroutine, before the limiter is asked. A cost that is negative or more than the limiter can ever grant
	// is an [ErrPermitCount]. If nil, each item costs one permit.
	Cost func(item T) int
}

// NewChannel returns a Channel whose items each cost permits of l. The buffer holds up to capacity items and takes
// memory as it fills. If capacity is 0, there is no buffer, and Send returns when the item was received. If o is nil,
// the options are the defaults.
//
// The error is a [weir.OptionsError] if l is nil or capacity is negative.
func NewChannel[T any](l Limiter, capacity int, o *ChannelOptions[T]) (*Channel[T], error) {
	var p validate.Problems
	if isnil.Value(l) {
		p.Add("l", nil, "must not be nil")
	}
	p.AtLeast("capacity", capacity, 0)
	if err := p.Err("limiter"); err != nil {
		return nil, err
	}
	c := &Channel[T]{limiter: l, capacity: capacity, closing: &closeNotifier{}}
	if o != nil {
		c.cost = o.Cost
	}
	return c, nil
}

// costOf returns how many permits v costs.
func (c *Channel[T]) costOf(v T) int {
	if c.cost == nil {
		return 1
	}
	return c.cost(v)
}

// Send sends v. It waits in the limiter's queue for a permit, if there is room, and then until the buffer has room. The
// number of senders that wait for the buffer is bounded only by the permits that the limiter grants.
//
// The error is ctx's, which is checked first; a [*SendRejectedError] if the limiter rejected; [ErrClosed] if the channel is
// closed or is closed while Send waits; or another error of the limiter. After an error the item was not sent and costs
// nothing.
func (c *Channel[T]) Send(ctx context.Context, v T) error {
	if err := c.sendError(ctx); err != nil {
		return err
	}
	lease, err := c.acquire(ctx, c.costOf(v))
	if err != nil {
		return err
	}
	return c.put(ctx, channelItem[T]{v, lease}, true)
}

// TrySend sends v if that is possible now; it neither queues nor waits for room. It returns the errors of
// [Channel.Send], and [ErrChannelFull], which is checked before the limiter is asked.
func (c *Channel[T]) TrySend(ctx context.Context, v T) error {
	if err := c.sendError(ctx); err != nil {
		return err
	}
	if !c.hasRoom() {
		return ErrChannelFull
	}
	lease, err := c.limiter.TryAcquire(ctx, c.costOf(v))
	if err := c.acquireError(lease, err); err != nil {
		return err
	}
	return c.put(ctx, channelItem[T]{v, lease}, false)
}

// Receive returns the next item and releases its permits. It waits until there is one. The error is ctx's, even if
// there are items, or [ErrClosed] if the channel is closed and every item has been received. If there is an error,
// Receive returns the zero T, and no item is lost. If the lease's release panics, the panic is logged and the item is
// returned.
func (c *Channel[T]) Receive(ctx context.Context) (T, error) {
	item, err := c.take(ctx)
	if err != nil {
		return item.value, err
	}
	release(item.lease)
	return item.value, nil
}

// release releases l. A panic of a custom limiter must not lose the item.
func release(l Lease) {
	defer func() {
		if p := recover(); p != nil {
			recovered.Report("limiter: release of an item's lease", p, debug.Stack())
		}
	}()
	l.Release()
}

// All yields the items as [Channel.Receive] returns them, until the channel is closed and empty, or ctx ends; call
// ctx.Err to tell which. Several goroutines can range at once: each item goes to one of them. Breaking out of the loop
// loses no item.
func (c *Channel[T]) All(ctx context.Context) iter.Seq[T] {
	return func(yield func(T) bool) {
		for {
			v, err := c.Receive(ctx)
			if err != nil || !yield(v) {
				return
			}
		}
	}
}

// Len returns the number of items in the buffer.
func (c *Channel[T]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buffer.length
}

// Cap returns the number of items that the buffer can hold.
func (c *Channel[T]) Cap() int { return c.capacity }

// Close ends sending: later calls of Send return [ErrClosed]. Calls that wait for room also return it. So do calls that
// wait in the limiter's queue, which they leave as if their context had ended. Items in the buffer can still be
// received, and hold their permits until then. Close does not close the limiter. It can be called any number of times,
// and returns nil.
func (c *Channel[T]) Close() error {
	if c.closing == nil {
		return nil
	}
	c.mu.Lock()
	defer c.closing.notifyAll()
	defer c.mu.Unlock()
	if c.closed() {
		return nil
	}
	c.closing.closed.Store(true)
	for _, waiting := range []*waitlist.List[handover[T]]{&c.senders, &c.receivers} {
		for w := pop(waiting); w != nil; w = pop(waiting) {
			w.Value.err = errChannelClosed
			close(w.Ready)
		}
	}
	return nil
}

// closed reports whether the channel is closed. If mu is not held, the channel can be closed right after closed has
// returned false.
func (c *Channel[T]) closed() bool { return c.closing == nil || c.closing.closed.Load() }

// sendError returns the error of a send that must not begin, or nil.
func (c *Channel[T]) sendError(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctxerr.Of(ctx)
	case c.closed():
		return errChannelClosed
	default:
		return nil
	}
}

// hasRoom reports whether an item could be put into the channel now.
func (c *Channel[T]) hasRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.receivers.Empty() || c.buffer.length < c.capacity
}

// acquire waits for n permits until ctx ends or the channel is closed.
func (c *Channel[T]) acquire(ctx context.Context, n int) (Lease, error) {
	s := &sendContext{Context: ctx, closing: c.closing}
	defer s.settle()
	lease, err := c.limiter.Acquire(s, n)
	return lease, c.acquireError(lease, err)
}

// acquireError returns the error of a send whose call of the limiter returned lease and err, or nil if the send can
// continue.
func (c *Channel[T]) acquireError(lease Lease, err error) error {
	switch {
	case err == nil && lease.Acquired():
		return nil
	case c.closed():
		err = errChannelClosed
	case err == nil:
		err = &SendRejectedError{Lease: lease}
	}
	lease.Refund() // in case a limiter grants with an error
	return err
}
