package process

import (
	"errors"
	"time"
)

// ErrStopped is the error of a run that was told twice to stop.
var ErrStopped = errors.New("stopped by a second signal before all requests had ended")

// BeginStop begins a graceful end: /ready fails from now on. again is closed by a second signal. The caller calls done when
// the end is over.
func (p *Process) BeginStop() (again <-chan struct{}, done func()) {
	p.draining.Store(true)
	twice, over := make(chan struct{}), make(chan struct{})
	go func() {
		select {
		case <-p.Stop:
			close(twice)
		case <-over:
		}
	}()
	return twice, func() { close(over) }
}

// Delay waits for d, so that load balancers notice that /ready fails, or for a second signal.
func Delay(d time.Duration, again <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-again:
	}
}
