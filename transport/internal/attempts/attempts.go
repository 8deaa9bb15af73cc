// Package attempts lets the strategies of a pipeline run a handler several times, but never twice at once. It is what
// weirhttp and weirgrpc have in common.
package attempts

import "sync"

// Attempts are the attempts of strategies to run the handler of one call. The zero value has none yet.
type Attempts struct {
	mu       sync.Mutex
	running  bool
	ran      bool
	over     bool           // the handler must not begin
	returned sync.WaitGroup // for a handler that a strategy runs on another goroutine
}

// Begin reports whether an attempt can run the handler. If it returns true, End must be called when the handler has
// returned. If the handler has run before, it runs again only if again returns true. No attempt begins or ends meanwhile.
func (a *Attempts) Begin(again func() bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.running || a.ran && !again() {
		return false
	}
	a.running, a.ran = true, true
	a.returned.Add(1)
	return true
}

// End ends what Begin began.
func (a *Attempts) End() {
	a.mu.Lock()
	a.running = false
	a.mu.Unlock()
	a.returned.Done()
}

// Finish lets no other attempt begin, and waits for a handler that is still running.
func (a *Attempts) Finish() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.returned.Wait()
}

// Ran reports whether the handler has begun to run.
func (a *Attempts) Ran() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ran
}
