package limiter

import (
	"context"
	"errors"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/waitlist"
)

// A handover is what a sender or receiver waits with: a sender has its item, and a receiver gets one.
type handover[T any] struct {
	item channelItem[T]
	err  error // why it has ended without one
}

// push makes a waiter and adds it as the newest.
func push[T any](l *waitlist.List[handover[T]], item channelItem[T]) *waitlist.Waiter[handover[T]] {
	w := &waitlist.Waiter[handover[T]]{Value: handover[T]{item: item}, Ready: make(chan struct{})}
	l.Push(w)
	return w
}

// pop removes and returns the oldest waiter, or nil.
func pop[T any](l *waitlist.List[handover[T]]) *waitlist.Waiter[handover[T]] {
	w := l.First(OldestFirst)
	if w != nil {
		l.Remove(w)
	}
	return w
}

// put gives the item to a receiver that waits, or puts it into the buffer. If neither is possible and wait is true, put
// waits. If it fails, the lease is refunded.
func (c *Channel[T]) put(ctx context.Context, item channelItem[T], wait bool) error {
	delivered := false
	defer func() {
		if !delivered { // put fails, or a method of ctx panics
			item.lease.Refund() // without the lock, because this can run a function of the program
		}
	}()
	_, err := c.offer(item, false)
	if wait && err == ErrChannelFull { //nolint:errorlint // offer returns it bare
		done := ctx.Done() // the program's code: if it panics, no waiter must be left behind
		w, offered := c.offer(item, true)
		if err = offered; w != nil {
			_, err = c.await(ctx, done, &c.senders, w)
		}
	}
	delivered = err == nil
	return err
}

// offer is put without its wait. If neither a receiver nor the buffer can take the item, it returns ErrChannelFull or,
// if wait is true, a waiter that is in the list of senders.
func (c *Channel[T]) offer(item channelItem[T], wait bool) (*waitlist.Waiter[handover[T]], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed() {
		return nil, errChannelClosed
	}
	if r := pop(&c.receivers); r != nil {
		r.Value.item = item
		close(r.Ready)
		return nil, nil
	}
	if c.buffer.length < c.capacity {
		c.buffer.push(item, c.capacity)
		return nil, nil
	}
	if !wait {
		return nil, ErrChannelFull
	}
	return push(&c.senders, item), nil
}

// take returns the next item, and waits for it.
func (c *Channel[T]) take(ctx context.Context) (channelItem[T], error) {
	if ctx.Err() != nil {
		return channelItem[T]{}, ctxerr.Of(ctx)
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

// errChannelEmpty means that a receiver has to wait.
var errChannelEmpty = errors.New("limiter: channel empty")

// next is take without its wait. If there is no item, it returns errChannelEmpty or, if wait is true, a waiter that is
// in the list of receivers.
func (c *Channel[T]) next(wait bool) (item channelItem[T], w *waitlist.Waiter[handover[T]], err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buffer.length > 0 {
		item = c.buffer.pop()
		if s := pop(&c.senders); s != nil {
			c.buffer.push(s.Value.item, c.capacity)
			close(s.Ready)
		}
		return item, nil, nil
	}
	if s := pop(&c.senders); s != nil { // without a buffer
		item = s.Value.item
		close(s.Ready)
		return item, nil, nil
	}
	switch {
	case c.closed():
		return item, nil, errChannelClosed
	case !wait:
		return item, nil, errChannelEmpty
	}
	return item, push(&c.receivers, item), nil
}

// await returns the result of w, or takes w out of its list when ctx ends. If w gets a result at the same time, await
// returns the result, because the item has been handed over.
func (c *Channel[T]) await(ctx context.Context, done <-chan struct{}, list *waitlist.List[handover[T]], w *waitlist.Waiter[handover[T]]) (item channelItem[T], err error) {
	select {
	case <-w.Ready:
		return w.Value.item, w.Value.err
	case <-done:
	}
	c.mu.Lock()
	left := list.Remove(w)
	c.mu.Unlock()
	if left {
		return item, ctxerr.Of(ctx)
	}
	<-w.Ready
	return w.Value.item, w.Value.err
}

// A channelItem is an item with the lease of its permits.
type channelItem[T any] struct {
	value T
	lease Lease
}

// A channelBuffer is a ring that grows as needed.
type channelBuffer[T any] struct {
	slots  []channelItem[T]
	first  int
	length int
}

// push appends an item. The buffer has fewer items than capacity.
func (b *channelBuffer[T]) push(item channelItem[T], capacity int) {
	if b.length == len(b.slots) {
		b.grow(capacity)
	}
	b.slots[(b.first+b.length)%len(b.slots)] = item
	b.length++
}

func (b *channelBuffer[T]) grow(capacity int) {
	slots := make([]channelItem[T], min(max(8, 2*len(b.slots)), capacity))
	n := copy(slots, b.slots[b.first:])
	copy(slots[n:], b.slots[:b.first])
	b.slots, b.first = slots, 0
}

// pop removes and returns the oldest item; there is one.
func (b *channelBuffer[T]) pop() channelItem[T] {
	slot := &b.slots[b.first]
	item := *slot
	*slot = channelItem[T]{} // so that the ring keeps nothing alive
	b.first = (b.first + 1) % len(b.slots)
	b.length--
	return item
}
