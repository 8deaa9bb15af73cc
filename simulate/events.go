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
	minHeap[event]
	seq int64
}

// push adds an event.
func (h *eventHeap) push(e event) {
	h.seq++
	e.seq = h.seq
	h.minHeap.push(e)
}

// hasten moves the events that give a task the turn to an instant, if they are later. They keep the order in which they
// were pushed.
func (h *eventHeap) hasten(to time.Duration) {
	events := h.items
	h.items = nil
	for _, e := range events {
		if e.task != nil {
			e.at = min(e.at, to)
		}
		h.minHeap.push(e)
	}
}
