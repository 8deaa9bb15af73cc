package dashboard

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/internal/recovered"
)

// An asker calls a function of the program that can block, panic or end its goroutine, on a goroutine of its own, and one
// at a time: a function that has not answered is not called again. The zero asker is ready to use.
type asker[T any] struct {
	mu   sync.Mutex
	open *question[T] // nil if the function is not running
}

// A question is one call of the function.
type question[T any] struct {
	done     chan struct{} // closed when the call has returned
	answer   T
	answered bool        // written before done is closed: the function has returned and not panicked
	late     atomic.Bool // a caller has timed out; later ones do not wait for the same call
}

// ask begins a call, or joins the one that is running. hook names the function in the log.
func (a *asker[T]) ask(hook string, f func() T) *question[T] {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		q := &question[T]{done: make(chan struct{})}
		a.open = q
		go a.call(q, hook, f)
	}
	return a.open
}

func (a *asker[T]) call(q *question[T], hook string, f func() T) {
	defer func() {
		a.mu.Lock()
		a.open = nil
		a.mu.Unlock()
		close(q.done)
	}()
	q.answered = recovered.Call("dashboard: "+hook, func() { q.answer = f() })
}

// wait waits for the answer until ctx is done. ok is false if there is none.
func (q *question[T]) wait(ctx context.Context) (answer T, ok bool) {
	if !q.late.Load() {
		select {
		case <-q.done:
		case <-ctx.Done():
			q.late.Store(true)
		}
	}
	select {
	case <-q.done:
		return q.answer, q.answered
	default:
		return answer, false
	}
}
