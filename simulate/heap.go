package simulate

// A minHeap has elements of which the first is before all others.
type minHeap[T any] struct {
	items  []T
	before func(a, b *T) bool
}

// push adds an element.
func (h *minHeap[T]) push(x T) {
	h.items = append(h.items, x)
	for i := len(h.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(&h.items[i], &h.items[up]) {
			return
		}
		h.items[i], h.items[up] = h.items[up], h.items[i]
		i = up
	}
}

// pop removes the first element. There must be one.
func (h *minHeap[T]) pop() T {
	var none T
	top, last := h.items[0], len(h.items)-1
	h.items[0], h.items[last] = h.items[last], none
	h.items = h.items[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && h.before(&h.items[down], &h.items[least]) {
				least = down
			}
		}
		if least == i {
			return top
		}
		h.items[i], h.items[least] = h.items[least], h.items[i]
		i = least
	}
}
