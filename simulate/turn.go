package simulate

import (
	"container/heap"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/simulate/internal/bubble"
)

// Turns let one task at a time run. The turn of a task lasts until every goroutine of the bubble waits. Whatever else
// belongs to a run is for the task that has the turn or, while none has it, for the main goroutine.
//
// A limiter that grants a permit, or a timer, wakes a task that does not have the turn. Before that task touches what others
// use, it must pass a gate, where it asks for a turn.
type turns struct {
	holder atomic.Pointer[task]

	mu      sync.Mutex
	waiting minHeap[*task]
	closed  bool          // no task gets a turn any more
	asked   chan struct{} // has an element if a task asked since it was last received

	endless bool // a task has passed mostPasses gates at one instant
}

// A request is a request of a client, with all its executions.
type request struct {
	number int64
	key    string
	cost   int
	counts *keyCounts // of its key; nil: the key is not kept
	served int        // how many calls of it were served

	// Of the execution that runs:
	begun    time.Duration
	reached  bool   // it has reached the service
	queued   bool   // it has waited for a permit
	failedBy string // the strategy that has returned an error of its own
}

// A task is a goroutine that takes turns: that of a request, or of an attempt of a hedge.
type task struct {
	turns   *turns
	request *request
	order   []int // that of the task that hedges, the number of its hedge, and the attempt; empty: the request's own task
	hedges  int   // how many hedges the task has begun
	resume  chan struct{}
	closed  bool

	passed time.Time // when it passed a gate
	passes int       // how many gates it has passed at that instant

	asking  bool          // it is in front of a limiter
	since   time.Duration // when it came there
	permits int           // the most that a limiter has granted to the execution; noPermits: none was asked
	inner   bool          // the last named strategy has called what is behind it
}

const noPermits = -1

var _ deterministic.Taker = (*task)(nil)

func newTask(t *turns, r *request) *task {
	return &task{turns: t, request: r, resume: make(chan struct{}, 1), permits: noPermits}
}

// taskOf returns the task that runs with ctx, or nil.
func taskOf(ctx context.Context) *task {
	t, _ := ctx.Value(deterministic.TurnKey{}).(*task)
	return t
}

// mostPasses is how many gates a task can pass at one instant. A request that is tried again without a delay passes them
// forever if only the time can end that, for the clock stands still as long as the task does not wait.
const mostPasses = 100_000

// Take returns when t has the turn. Only the goroutine of t calls it. If the run has ended, Take ends the goroutine.
func (t *task) Take() {
	s := t.turns
	if now := time.Now(); !now.Equal(t.passed) {
		t.passed, t.passes = now, 0
	}
	if s.holder.Load() == t {
		if t.passes++; t.passes < mostPasses {
			return
		}
		s.endless = true
	}
	s.ask(t)
	select {
	case s.asked <- struct{}{}:
	default:
	}
	t.await()
}

// Granted implements [deterministic.Granted].
func (t *task) Granted(permits int) { t.permits = max(t.permits, permits) }

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
	heap.Push(&s.waiting, t)
}

// end ends the goroutine of each task that waits for a turn, or asks for one from now on. Whatever else a task waits for
// must end, too. Only the main goroutine calls it.
func (s *turns) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, t := range s.waiting {
		t.close()
	}
	s.waiting = nil
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
	for !s.endless {
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
	if len(s.waiting) == 0 {
		return nil
	}
	return heap.Pop(&s.waiting).(*task)
}

// before reports which of two tasks that ask at the same instant comes first.
func (t *task) before(u *task) bool {
	a, b := t.request.number, u.request.number
	return a < b || a == b && slices.Compare(t.order, u.order) < 0
}

// An event is what the run does at an instant: it gives a task the turn, or calls a function.
type event struct {
	at   time.Duration
	seq  int64 // orders events at the same instant
	task *task
	do   func()
}

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

// A minHeap implements [heap.Interface]: its first element is before all others.
type minHeap[T interface{ before(T) bool }] []T

func (h minHeap[T]) Len() int           { return len(h) }
func (h minHeap[T]) Less(i, j int) bool { return h[i].before(h[j]) }
func (h minHeap[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *minHeap[T]) Push(x any)        { *h = append(*h, x.(T)) }

// Pop removes the last element.
func (h *minHeap[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	return x
}
