package simulate

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/simulate/internal/bubble"
)

// Turns let one task at a time run. Everything else in a run belongs to the task that has the turn, or to the main
// goroutine while no task has it.
//
// The turn of a task lasts until every goroutine of the bubble waits. A task that something other than its turn wakes,
// such as a limiter that grants it a permit, must not touch anything that is shared: at the next gate it asks for a turn.
type turns struct {
	holder atomic.Pointer[task]

	mu      sync.Mutex
	waiting minHeap[*task]
	closed  bool          // no task gets a turn any more
	asked   chan struct{} // has an element if a task asked since it was last received
}

// A request is a request of a client, with all its executions.
type request struct {
	number int64
	key    string
	cost   int
	counts *keyCounts // of its key; nil: the key is not kept
	draws  int        // how many calls of it were served

	// Of the execution that runs:
	begun    time.Duration
	reached  bool   // it has reached the service
	queued   bool   // it has waited for a permit
	cameBack bool   // it was begun when a RetryAfter had passed
	failedBy string // the strategy that has failed in place of those behind it
}

// A task is a goroutine that takes turns: that of a request, or of a hedged attempt.
type task struct {
	turns   *turns
	request *request
	order   []int // among the tasks of the request: that of the task that hedges, its race, and the number of the attempt
	races   int   // how many races of hedged attempts the task has begun
	resume  chan struct{}
	closed  bool

	now    time.Time     // when it passed a gate, or ended its last rest
	passes int           // how many gates it has passed since then, or since its last rest
	spins  time.Time     // when it rested first; the zero Time if the time has moved on by itself since
	asking bool          // whether it is in front of a limiter
	asked  time.Duration // since when

	permits int  // the most that a limiter has granted to the execution; noPermits before
	passed  bool // it has passed the last strategy that can fail in place of those behind it
}

const noPermits = -1

func newTask(t *turns, r *request) *task {
	return &task{turns: t, request: r, resume: make(chan struct{}, 1), permits: noPermits}
}

// taskOf returns the task that runs with ctx, or nil.
func taskOf(ctx context.Context) *task {
	t, _ := ctx.Value(deterministic.TurnKey{}).(*task)
	return t
}

// Take returns when t has the turn. Only the goroutine of t calls it. If the run has ended, Take ends the goroutine.
func (t *task) Take() {
	s := t.turns
	if now := time.Now(); !now.Equal(t.now) {
		t.now, t.passes, t.spins = now, 0, time.Time{}
	}
	if s.holder.Load() == t {
		if t.passes++; t.passes < mostPasses {
			return
		}
		t.rest()
	}
	s.ask(t)
	select {
	case s.asked <- struct{}{}:
	default:
	}
	t.await()
}

// A retry without a delay and without an end would go on forever at one instant. So a task rests when it has passed
// mostPasses gates at one instant, and again after every spinPasses. A rest is a hundredth of the time since the first one:
// the instant that ends the retries is found to one part in a hundred, and retries that nothing ends take few rests. The
// cut does not wake a task that rests, so a rest is shorter than afterCut.
const (
	mostPasses    = 10_000
	spinPasses    = 100
	shortestPause = time.Microsecond
	afterCut      = 10 * time.Minute // how long requests have to end once they are cut off
)

func (t *task) rest() {
	if t.spins.IsZero() {
		t.spins = time.Now()
	}
	t.passes = mostPasses - spinPasses
	time.Sleep(min(max(time.Since(t.spins)/100, shortestPause), afterCut/2))
	t.now = time.Now()
}

// await waits until t has the turn. If the run has ended, await ends the goroutine.
func (t *task) await() {
	if _, ok := <-t.resume; !ok {
		runtime.Goexit()
	}
}

func (s *turns) ask(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		runtime.Goexit()
	}
	s.waiting.push(t)
}

// end ends the goroutine of each task that waits for a turn, or asks for one from now on. Whatever else a task waits for
// must end, too. Only the main goroutine calls it.
func (s *turns) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, t := range s.waiting.items {
		t.close()
	}
	s.waiting.items = nil
}

// close ends the goroutine of t when it waits for its turn the next time.
func (t *task) close() {
	if !t.closed {
		t.closed = true
		close(t.resume)
	}
}

// give gives t the turn, and returns when it is over. Only the main goroutine calls it; t waits for resume.
func (s *turns) give(t *task) {
	s.holder.Store(t)
	t.resume <- struct{}{}
	bubble.Wait()
	s.holder.Store(nil)
}

// settle gives turns until no task asks for one. Only the main goroutine calls it, when all others wait.
func (s *turns) settle() {
	for {
		t := s.first()
		if t == nil {
			return
		}
		s.give(t)
	}
}

// first takes the task that comes first off the waiting ones. It returns nil if none waits.
func (s *turns) first() *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting.items) == 0 {
		return nil
	}
	return s.waiting.pop()
}

// beforeTask reports which of two tasks that ask at the same instant comes first.
func beforeTask(t, u **task) bool {
	a, b := (*t).request.number, (*u).request.number
	return a < b || a == b && slices.Compare((*t).order, (*u).order) < 0
}

// An event is what the run does at an instant: it gives a task the turn, or calls a function.
type event struct {
	at   time.Duration
	seq  int64 // orders events at the same instant
	task *task
	do   func()
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// An eventHeap has the events to come, the next one first.
type eventHeap struct {
	minHeap[event]
	seq int64
}

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

// A minHeap has elements of which the first is before all others.
type minHeap[T any] struct {
	items  []T
	before func(a, b *T) bool
}

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
