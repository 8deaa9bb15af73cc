package limiter

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

// A channelWaiter is a sender with its item, or a receiver without one. It is guarded by the Channel's lock until ready
// is closed, and then belongs to the caller that waits.
type channelWaiter[T any] struct {
	item          channelItem[T]
	err           error
	ready         chan struct{} // closed when there is a result
	waiting       bool
	before, after *channelWaiter[T]
}

// wake gives the waiter, which has left its list, its result.
func (w *channelWaiter[T]) wake(err error) {
	w.err = err
	close(w.ready)
}

// channelWaiters is a list of waiters, the one that has waited longest first.
type channelWaiters[T any] struct{ head, tail *channelWaiter[T] }

func (l *channelWaiters[T]) empty() bool { return l.head == nil }

// push makes a waiter and adds it at the end.
func (l *channelWaiters[T]) push(item channelItem[T]) *channelWaiter[T] {
	w := &channelWaiter[T]{item: item, ready: make(chan struct{}), waiting: true, before: l.tail}
	if l.tail != nil {
		l.tail.after = w
	} else {
		l.head = w
	}
	l.tail = w
	return w
}

// pop removes and returns the first waiter, or nil.
func (l *channelWaiters[T]) pop() *channelWaiter[T] {
	w := l.head
	if w != nil {
		l.remove(w)
	}
	return w
}

// remove removes w, and reports whether it was in the list.
func (l *channelWaiters[T]) remove(w *channelWaiter[T]) bool {
	if !w.waiting {
		return false
	}
	if w.before != nil {
		w.before.after = w.after
	} else {
		l.head = w.after
	}
	if w.after != nil {
		w.after.before = w.before
	} else {
		l.tail = w.before
	}
	w.waiting, w.before, w.after = false, nil, nil
	return true
}
