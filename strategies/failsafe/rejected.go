package weirfailsafe

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/adaptivethrottler"
	"github.com/failsafe-go/failsafe-go/budget"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/failsafe-go/failsafe-go/timeout"

	"github.com/weir-go/weir/pipeline"
)

// rejections are the errors with which policies turn an execution away.
var rejections = []error{
	adaptivelimiter.ErrExceeded,
	adaptivethrottler.ErrExceeded,
	budget.ErrExceeded,
	bulkhead.ErrFull,
	circuitbreaker.ErrOpen,
	ratelimiter.ErrExceeded,
	timeout.ErrExceeded,
}

func isRejection(err error) bool {
	return slices.ContainsFunc(rejections, func(r error) bool { return errors.Is(err, r) })
}

// RejectedError is the error of an execution that a policy of failsafe-go turned
// away. It [errors.Is] [pipeline.ErrRejected], and what Err is.
type RejectedError struct {
	// Source says which pipeline and which strategy rejected.
	Source pipeline.Source
	// Err is failsafe-go's error, such as circuitbreaker.ErrOpen.
	Err error

	retryAfter time.Duration
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("failsafe: %v: rejected: %v", e.Source, e.Err)
}

// Is tells whether target is [pipeline.ErrRejected].
func (e *RejectedError) Is(target error) bool { return target == pipeline.ErrRejected }

// Unwrap returns Err.
func (e *RejectedError) Unwrap() error { return e.Err }

// Timeout tells whether a timeout was exceeded, as a [net.Error] would.
func (e *RejectedError) Timeout() bool { return errors.Is(e.Err, timeout.ErrExceeded) }

// NotCalled reports whether the callback was not called: true for every rejection but a timeout. A circuit
// breaker around the strategy does not count such a rejection.
func (e *RejectedError) NotCalled() bool { return !e.Timeout() }

// RetryAfter returns when an open circuit will let an execution through again; ok
// is false for other rejections, of which failsafe-go does not know. See
// [pipeline.RetryAfter].
func (e *RejectedError) RetryAfter() (d time.Duration, ok bool) {
	return e.retryAfter, e.retryAfter > 0
}

// remainingDelay is for how long the circuits of the strategy stay open.
func (s *Strategy[R]) remainingDelay(err error) (longest time.Duration) {
	if !errors.Is(err, circuitbreaker.ErrOpen) {
		return 0
	}
	for _, p := range s.policies {
		if breaker, ok := p.(circuitbreaker.CircuitBreaker[R]); ok {
			longest = max(longest, breaker.RemainingDelay())
		}
	}
	return longest
}
