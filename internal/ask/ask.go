// Package ask calls functions of the program that may never answer.
package ask

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/internal/recovered"
)

// An Asker calls a function of the program that can block, panic or end its goroutine, on a goroutine of its own, and one
// at a time: a function that has not answered is not called again. The zero Asker is ready to use.
type Asker[T any] struct {
	mu   sync.Mutex
	open *Question[T] // nil if the function is not running
}

// A Question is one call of the function.
type Question[T any] struct {
	done     chan struct{} // closed when the call has returned
	answer   T
	answered bool        // written before done is closed: the function has returned and not panicked
	late     atomic.Bool // a caller has timed out; later ones do not wait for the same call
}

// Ask begins a call, or joins the one that is running. hook names the function in the log, such as "dashboard:
// Describe of a pipeline".
func (a *Asker[T]) Ask(hook string, f func() T) *Question[T] {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		q := &Question[T]{done: make(chan struct{})}
		a.open = q
		go a.call(q, hook, f)
	}
	return a.open
}

func (a *Asker[T]) call(q *Question[T], hook string, f func() T) {
	defer func() {
		a.mu.Lock()
		a.open = nil
		a.mu.Unlock()
		close(q.done)
	}()
	q.answered = recovered.Call(hook, func() { q.answer = f() })
}

// Wait waits for the answer until ctx is done. ok is false if there is none.
func (q *Question[T]) Wait(ctx context.Context) (answer T, ok bool) {
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
