package limiter

// A channelItem is an item with what it costs.
type channelItem[T any] struct {
	value T
	lease Lease
}

// A channelBuffer is a ring that grows as it is needed.
type channelBuffer[T any] struct {
	slots  []channelItem[T]
	first  int
	length int
}

// push appends an item; there must be room, with so many slots at most.
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

func (b *channelBuffer[T]) pop() channelItem[T] {
	slot := &b.slots[b.first]
	item := *slot
	*slot = channelItem[T]{} // nothing is kept alive for the sake of a slot
	b.first = (b.first + 1) % len(b.slots)
	b.length--
	return item
}

// A channelWaiter is one sender, with its item, or one receiver, without. All of
// it is guarded by the Channel's lock until ready has been signalled, and then
// belongs to whoever waits.
type channelWaiter[T any] struct {
	item          channelItem[T]
	err           error
	ready         chan struct{} // one signal: it is over
	waiting       bool
	before, after *channelWaiter[T]
}

// wake tells the waiter that it is over; it has left its list.
func (w *channelWaiter[T]) wake(err error) {
	w.err = err
	close(w.ready)
}

// channelWaiters is a list, the one who has waited longest first.
type channelWaiters[T any] struct{ head, tail *channelWaiter[T] }

func (l *channelWaiters[T]) empty() bool { return l.head == nil }

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

// pop takes the head out of the list; nil if there is none.
func (l *channelWaiters[T]) pop() *channelWaiter[T] {
	w := l.head
	if w != nil {
		l.remove(w)
	}
	return w
}

// remove takes w out of the list, and tells whether it was still there.
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
