package simulate

import "time"

// An event is what the run does at an instant: it gives a task the turn, ends a call, or calls a function.
type event struct {
	at   time.Duration
	seq  int64 // orders events at the same instant
	task *task
	call *call
	do   func()
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// An eventHeap has the events to come, the next one first.
type eventHeap struct {
	events []event
	seq    int64
}

// push adds an event.
func (h *eventHeap) push(e event) {
	h.seq++
	e.seq = h.seq
	h.events = append(h.events, e)
	i := len(h.events) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.events[i].before(&h.events[up]) {
			return
		}
		h.events[i], h.events[up] = h.events[up], h.events[i]
		i = up
	}
}

// pop removes the next event. There must be one.
func (h *eventHeap) pop() event {
	top, last := h.events[0], len(h.events)-1
	h.events[0] = h.events[last]
	h.events[last] = event{}
	h.events = h.events[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && h.events[down].before(&h.events[least]) {
				least = down
			}
		}
		if least == i {
			return top
		}
		h.events[i], h.events[least] = h.events[least], h.events[i]
		i = least
	}
}
