package limiter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/internal/validate"
)

// ErrChannelFull is returned by [Channel.TrySend] when no buffer room is free
// and nobody is waiting to receive.
var ErrChannelFull = errors.New("limiter: channel full")

// errChannelClosed tells a closed channel from a closed limiter in the text;
// for errors.Is they are the same.
var errChannelClosed = fmt.Errorf("%w: channel", ErrClosed)

// RejectedError is returned by [Channel.Send] and [Channel.TrySend] when the
// limiter rejected the item. Get at it with [errors.AsType].
type RejectedError struct {
	// Lease is the limiter's answer: when to come back, and why.
	Lease Lease
}

// Error says why, and when to come back, where that is known.
func (e *RejectedError) Error() string {
	text := "limiter: rejected"
	if reason := e.Lease.Reason(); reason != "" {
		text += ": " + reason
	}
	if d, ok := e.Lease.RetryAfter(); ok {
		text += fmt.Sprintf("; retry after %v", d)
	}
	return text
}

// RetryAfter is when to come back, where that is known. A retry strategy asks
// errors for it.
func (e *RejectedError) RetryAfter() (time.Duration, bool) { return e.Lease.RetryAfter() }

// NotCalled returns true: the item was not sent. A circuit breaker around the send does not count it.
func (e *RejectedError) NotCalled() bool { return true }

// A Channel is a channel whose sending side is guarded by a [Limiter]. Each item
// costs one permit, or [ChannelOptions.Cost] permits, which go back when the item is received: with a
// [Concurrency] limiter, which several channels may share, so many items are on
// their way at once; with a window or a bucket, so many are sent in a time. What
// the receiver does with an item is no longer the limiter's matter.
//
// Most senders want [Channel.Send], which waits, and most receivers range over
// [Channel.All]. Items come out in the order in which they went in. A send that
// comes to nothing — the context ended, the channel was closed, there was no
// room — costs nothing: its permit is taken back as if it had not been, windows
// and buckets included (see [GrantedRefundable] for limiters written elsewhere),
// and the item was not delivered.
//
// A Channel owns no goroutine, and never closes its limiter. It is made with
// [NewChannel]; the zero Channel is a closed one. All methods are safe for use
// by many goroutines at once.
type Channel[T any] struct {
	limiter  Limiter
	capacity int
	cost     func(T) int    // nil: 1 each
	closing  *closeNotifier // nil in a zero Channel

	mu        sync.Mutex
	buffer    channelBuffer[T]
	senders   channelWaiters[T] // only while the buffer is full
	receivers channelWaiters[T] // only while there is nothing to receive
}

// ChannelOptions are the options of a [Channel]. The zero value has the defaults.
type ChannelOptions[T any] struct {
	// Cost returns how many permits an item costs, such as its size. It is called once in each Send and
	// TrySend, on the sender's goroutine, before the limiter is asked. A cost that is negative
	// or more than the limiter can ever grant is an [ErrPermitCount]. If nil, each item costs one permit.
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

// costOf is how many permits v costs.
func (c *Channel[T]) costOf(v T) int {
	if c.cost == nil {
		return 1
	}
	return c.cost(v)
}

// Send sends v: it waits in the limiter's queue for a permit, where there is one
// with room, and then until the buffer has room. Only the permits that the limiter
// grants bound how many senders wait for the buffer.
//
// The errors are ctx's, which comes first when it is done already; a
// [*RejectedError] if the limiter rejected; [ErrClosed] if the channel is closed,
// or is while Send waits; and whatever error the limiter returned. After any of
// them the item was not sent and costs nothing.
func (c *Channel[T]) Send(ctx context.Context, v T) error {
	if err := c.usable(ctx); err != nil {
		return err
	}
	lease, err := c.acquire(ctx, c.costOf(v))
	if err != nil {
		return err
	}
	return c.put(ctx, channelItem[T]{v, lease}, true)
}

// TrySend sends v if that is possible now; it neither queues nor waits for room.
// Besides the errors of [Channel.Send] there is [ErrChannelFull], which comes
// before the limiter is asked.
func (c *Channel[T]) TrySend(ctx context.Context, v T) error {
	if err := c.usable(ctx); err != nil {
		return err
	}
	if !c.room() {
		return ErrChannelFull
	}
	lease, err := c.limiter.TryAcquire(ctx, c.costOf(v))
	if err := c.verdict(lease, err); err != nil {
		return err
	}
	return c.put(ctx, channelItem[T]{v, lease}, false)
}

// Receive returns the next item and gives its permit back. It waits until there
// is one. The error is ctx's, also if there are items; or [ErrClosed] if the
// channel is closed and everything that was sent has been received. With an
// error comes the zero T, and no item was taken. If the lease's release panics, that is
// logged, and the item is returned.
func (c *Channel[T]) Receive(ctx context.Context) (T, error) {
	item, err := c.take(ctx)
	if err != nil {
		return item.value, err
	}
	release(item.lease)
	return item.value, nil
}

// release keeps a panic of a limiter written elsewhere from taking the item along.
func release(l Lease) {
	defer func() {
		if p := recover(); p != nil {
			recovered.Report("limiter: release of an item's lease", p, debug.Stack())
		}
	}()
	l.Release()
}

// All yields the items as [Channel.Receive] returns them, until the channel is
// closed and empty, or ctx ends; ctx.Err tells which. Several goroutines may
// range at once: each item goes to one of them. One who breaks off loses none.
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

// Len is the number of items in the buffer now.
func (c *Channel[T]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buffer.length
}

// Cap is the number of items that the buffer can hold.
func (c *Channel[T]) Cap() int { return c.capacity }

// Close ends sending: every later Send returns [ErrClosed], and so do those that
// wait, be it for room or in the limiter's queue, which they leave as if their
// context had ended. What is in the buffer can still be received, and holds its
// permits until it is. Close does not close the limiter. It may be called any
// number of times, and returns nil.
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
	for w := c.senders.pop(); w != nil; w = c.senders.pop() {
		w.wake(errChannelClosed)
	}
	for w := c.receivers.pop(); w != nil; w = c.receivers.pop() {
		w.wake(errChannelClosed)
	}
	return nil
}

// closed can be asked at any time; the answer is final with mu held.
func (c *Channel[T]) closed() bool { return c.closing == nil || c.closing.closed.Load() }

// usable is the error of a send that need not begin.
func (c *Channel[T]) usable(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return contextError(ctx)
	case c.closed():
		return errChannelClosed
	default:
		return nil
	}
}

// room tells whether an item could be put now.
func (c *Channel[T]) room() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.receivers.empty() || c.buffer.length < c.capacity
}

// acquire waits for n permits until ctx ends or the channel is closed.
func (c *Channel[T]) acquire(ctx context.Context, n int) (Lease, error) {
	s := &sendContext{Context: ctx, closing: c.closing}
	defer s.settle()
	lease, err := c.limiter.Acquire(s, n)
	return lease, c.verdict(lease, err)
}

// verdict is the error of a send to which the limiter gave that answer; nil if
// the send can go on.
func (c *Channel[T]) verdict(lease Lease, err error) error {
	switch {
	case err == nil && lease.Acquired():
		return nil
	case c.closed():
		err = errChannelClosed
	case err == nil:
		err = &RejectedError{Lease: lease}
	}
	lease.Refund() // a limiter should not grant with an error; one may
	return err
}

// put hands the item on: to a receiver who waits, or into the buffer, or, where
// it may wait, to the one who makes room. If that fails the item costs nothing.
func (c *Channel[T]) put(ctx context.Context, item channelItem[T], wait bool) (err error) {
	err = errChannelPanicked
	defer func() {
		if err != nil {
			// Not under the lock: this may run a caller's function.
			item.lease.Refund()
		}
	}()
	if _, err = c.offer(item, false); !wait || err != ErrChannelFull { //nolint:errorlint // offer returns it bare
		return err
	}
	err = errChannelPanicked
	done := ctx.Done() // the program's code: if it panics, no waiter must be left behind
	w, e := c.offer(item, true)
	if w != nil {
		_, e = c.await(ctx, done, &c.senders, w)
	}
	return e
}

// errChannelPanicked is never returned: it stands for a panic that is under way.
var errChannelPanicked = errors.New("limiter: panicked")

// offer is put up to where it would wait.
func (c *Channel[T]) offer(item channelItem[T], wait bool) (*channelWaiter[T], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return nil, errChannelClosed
	}
	if r := c.receivers.pop(); r != nil {
		r.item = item
		r.wake(nil)
		return nil, nil
	}
	if c.buffer.length < c.capacity {
		c.buffer.push(item, c.capacity)
		return nil, nil
	}
	if !wait {
		return nil, ErrChannelFull
	}
	return c.senders.push(item), nil
}

// take returns the next item, and waits for it.
func (c *Channel[T]) take(ctx context.Context) (channelItem[T], error) {
	if ctx.Err() != nil {
		return channelItem[T]{}, contextError(ctx)
	}
	item, _, err := c.next(false)
	if err != errChannelEmpty { //nolint:errorlint // next returns it bare
		return item, err
	}
	done := ctx.Done() // the program's code: if it panics, no waiter must be left behind
	item, w, err := c.next(true)
	if w != nil {
		return c.await(ctx, done, &c.receivers, w)
	}
	return item, err
}

// errChannelEmpty says that a receiver would have to wait.
var errChannelEmpty = errors.New("limiter: channel empty")

// next is take up to where it would wait.
func (c *Channel[T]) next(wait bool) (item channelItem[T], w *channelWaiter[T], err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buffer.length > 0 {
		item = c.buffer.pop()
		if s := c.senders.pop(); s != nil {
			c.buffer.push(s.item, c.capacity)
			s.wake(nil)
		}
		return item, nil, nil
	}
	if s := c.senders.pop(); s != nil { // without a buffer
		item = s.item
		s.wake(nil)
		return item, nil, nil
	}
	switch {
	case c.closed():
		return item, nil, errChannelClosed
	case !wait:
		return item, nil, errChannelEmpty
	}
	return item, c.receivers.push(item), nil
}

// await returns what became of w, or takes it out of its list when ctx ends.
// Where the two meet, what became of it stands: the item has changed hands.
func (c *Channel[T]) await(ctx context.Context, done <-chan struct{}, list *channelWaiters[T], w *channelWaiter[T]) (item channelItem[T], err error) {
	select {
	case <-w.ready:
		return w.item, w.err
	case <-done:
	}
	c.mu.Lock()
	left := list.remove(w)
	c.mu.Unlock()
	if left {
		return item, contextError(ctx)
	}
	<-w.ready
	return w.item, w.err
}
