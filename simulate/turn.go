package simulate

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/internal/turn"
)

// Turns let one task at a time run. Everything else in a run belongs to the task that has the turn, or to the main
// goroutine while no task has it.
//
// The turn of a task lasts until every goroutine of the bubble waits. A task that something other than its turn wakes,
// such as a limiter that grants it a permit, must not touch anything that is shared: at the next gate it asks for a turn.
type turns struct {
	holder atomic.Pointer[task]
	given  int64 // how many turns there were

	mu      sync.Mutex
	waiting []*task
	asked   chan struct{} // has an element if a task asked since it was last received
}

// A task is a goroutine that takes turns: that of a request, or of a hedged attempt.
type task struct {
	turns   *turns
	request *request
	order   []int // among the tasks of the request: that of the task that hedges, its race, and the number of the attempt
	races   int   // how many races of hedged attempts the task has begun
	resume  chan struct{}

	asking bool          // whether it is in front of a limiter
	asked  time.Duration // since when
}

func newTask(t *turns, r *request) *task {
	return &task{turns: t, request: r, resume: make(chan struct{}, 1)}
}

// taskOf returns the task that runs with ctx, or nil.
func taskOf(ctx context.Context) *task {
	t, _ := ctx.Value(turn.Key{}).(*task)
	return t
}

// Take returns when t has the turn. Only the goroutine of t calls it.
func (t *task) Take() {
	s := t.turns
	if s.holder.Load() == t {
		return
	}
	s.mu.Lock()
	s.waiting = append(s.waiting, t)
	s.mu.Unlock()
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-t.resume
}

// give gives t the turn, and returns when it is over. Only the main goroutine calls it; t waits for resume.
func (s *turns) give(t *task) {
	s.given++
	s.holder.Store(t)
	t.resume <- struct{}{}
	synctest.Wait()
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
	if len(s.waiting) == 0 {
		return nil
	}
	i := 0
	for j, t := range s.waiting {
		if t.compare(s.waiting[i]) < 0 {
			i = j
		}
	}
	t := s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return t
}

// compare orders tasks that ask at the same instant.
func (t *task) compare(u *task) int {
	return cmp.Or(cmp.Compare(t.request.number, u.request.number), slices.Compare(t.order, u.order))
}
