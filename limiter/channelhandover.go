package limiter

import (
	"context"
	"errors"
)

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

// errChannelEmpty means that a receiver has to wait.
var errChannelEmpty = errors.New("limiter: channel empty")

// next is take without its wait. If there is no item, it returns errChannelEmpty or, if wait is true, a waiter that is
// in the list of receivers.
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

// await returns the result of w, or takes w out of its list when ctx ends. If w gets a result at the same time, await
// returns the result, because the item has been handed over.
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
