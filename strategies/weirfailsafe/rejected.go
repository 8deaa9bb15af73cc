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

// rejections are the errors with which policies of failsafe-go reject an execution.
var rejections = []error{
	adaptivelimiter.ErrExceeded,
	adaptivethrottler.ErrExceeded,
	budget.ErrExceeded,
	bulkhead.ErrFull,
	circuitbreaker.ErrOpen,
	ratelimiter.ErrExceeded,
	timeout.ErrExceeded,
}

// isRejection reports whether err is a rejection by a policy of failsafe-go.
func isRejection(err error) bool {
	return slices.ContainsFunc(rejections, func(r error) bool { return errors.Is(err, r) })
}

// A PolicyError is the error of an execution that a policy of failsafe-go rejected. It matches [pipeline.ErrRejected],
// and what Err matches.
type PolicyError struct {
	// Source is the strategy that rejected, and its pipeline.
	Source pipeline.Source
	// Err is failsafe-go's error, such as circuitbreaker.ErrOpen.
	Err error

	retryAfter time.Duration // 0 if it is not known
}

// Error returns a text with the Source and Err.
func (e *PolicyError) Error() string {
	return fmt.Sprintf("weirfailsafe: %v: rejected: %v", e.Source, e.Err)
}

// Is reports whether target is [pipeline.ErrRejected].
func (e *PolicyError) Is(target error) bool { return target == pipeline.ErrRejected }

func (e *PolicyError) Unwrap() error { return e.Err }

// Timeout reports whether a timeout was exceeded, as the method of a [net.Error] does.
func (e *PolicyError) Timeout() bool { return errors.Is(e.Err, timeout.ErrExceeded) }

// NotCalled reports whether the callback was not called: true for every rejection except a timeout. A circuit breaker
// outside does not count such a rejection.
func (e *PolicyError) NotCalled() bool { return !e.Timeout() }

// Retryable returns false for an open circuit, so that a retry outside returns the rejection at once, and true for other
// rejections. To wait until the circuit lets calls through, set the retry's Handle.
func (e *PolicyError) Retryable() bool { return !errors.Is(e.Err, circuitbreaker.ErrOpen) }

// RetryAfter returns how long an open circuit stays open; ok is false for other rejections, for which failsafe-go does not
// know a time. See [pipeline.RetryAfter].
func (e *PolicyError) RetryAfter() (d time.Duration, ok bool) {
	return e.retryAfter, e.retryAfter > 0
}
