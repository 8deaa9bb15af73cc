package store

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// waitIdle waits until s is idle, or until limit.
func (s *Store) waitIdle(limit time.Time) {
	changes := make(chan struct{}, 1)
	s.idleWaiter.Store(&changes)
	timeout := time.NewTimer(time.Until(limit))
	defer timeout.Stop()
	for !s.idle() {
		select {
		case <-changes:
		case <-timeout.C:
			return
		}
	}
}

// idle reports whether Close can stop waiting: all shards are away, or nothing is in flight and the batchers of the shards
// that are not away are idle.
func (s *Store) idle() bool {
	quiet, allAway := s.inFlight.Load() == 0, true
	for sh := range s.eachShard {
		if sh.breaker.err() == nil {
			quiet, allAway = quiet && sh.idle(), false
		}
	}
	return quiet || allAway
}

// idleChanged makes waitIdle look again. It is called after each change that can make idle true.
func (s *Store) idleChanged() {
	if changes := s.idleWaiter.Load(); changes != nil {
		select {
		case *changes <- struct{}{}:
		default:
		}
	}
}

func (s *Store) finishInFlight() {
	if s.inFlight.Add(-1) == 0 {
		s.idleChanged()
	}
}

// goBackground runs f on a goroutine that Close waits for. f must return soon after s.ctx has ended. If Close has already
// begun to wait for the goroutines, f is not run.
func (s *Store) goBackground(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.goroutines.Go(f)
	}
}

// sleep reports whether d has passed; false means that the Store was closed.
func (s *Store) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// afterPause calls f, which must not wait, after a pause. Close waits for f.
func (s *Store) afterPause(pause time.Duration, f func()) {
	if pause <= 0 {
		f()
		return
	}
	s.inFlight.Add(1)
	time.AfterFunc(pause, func() {
		defer s.finishInFlight()
		f()
	})
}

// maxLeaseRetries bounds how many lease calls wait for a newer definition at once.
const maxLeaseRetries = 16

// goLeaseRetry calls f on its own goroutine as soon as fewer than maxLeaseRetries others run, or the Store is closed.
func (s *Store) goLeaseRetry(f func()) {
	s.inFlight.Add(1)
	go func() {
		defer s.finishInFlight()
		select {
		case s.leaseRetrySlots <- struct{}{}:
			defer func() { <-s.leaseRetrySlots }()
		case <-s.ctx.Done():
		}
		f()
	}()
}

// errNoReturn is the error of a backend method that has panicked or ended its goroutine.
var errNoReturn = errors.New("the backend has panicked, or has ended its goroutine")

// runIsolated calls f on its own goroutine, so that a backend that panics or ends its goroutine ends nothing else.
func runIsolated(hook string, f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errNoReturn
		defer func() { done <- err }()
		recovered.Call(hook, func() { err = f() })
	}()
	return done
}

// callWithTimeout calls the backend and returns after CallTimeout at the latest, even if the backend does not.
func callWithTimeout[T any](s *Store, f func(ctx context.Context) (T, error)) (T, error) {
	var v, none T
	ctx, cancel := context.WithTimeout(s.ctx, s.o.CallTimeout)
	defer cancel()
	done := runIsolated("store: Backend", func() (err error) {
		v, err = f(ctx)
		return err
	})
	select {
	case err := <-done:
		return v, err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return v, err
	default:
		return none, errTimeout
	}
}
