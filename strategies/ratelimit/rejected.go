package ratelimit

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// RejectedError is the error of an execution that a limiter rejected. It
// [errors.Is] [pipeline.ErrRejected].
type RejectedError struct {
	// RetryAfter is the time after which it is worth trying again; 0: not known.
	RetryAfter time.Duration
	// Reason is what the limiter says beyond "too few permits", which is "".
	Reason string
	// Source says which pipeline and which strategy rejected.
	Source pipeline.Source
	// Lease is the limiter's answer, for what else it says.
	Lease limiter.Lease
}

func newRejectedError(source pipeline.Source, lease limiter.Lease) *RejectedError {
	after, _ := lease.RetryAfter()
	return &RejectedError{RetryAfter: max(after, 0), Reason: lease.Reason(), Source: source, Lease: lease}
}

// Error says who rejected, why, and when to come back, as far as that is known:
//
//	ratelimit: orders/RateLimiter: rejected: no permit free, retry after 4s
func (e *RejectedError) Error() string {
	var details []string
	if e.Reason != "" {
		details = append(details, e.Reason)
	}
	if e.RetryAfter > 0 {
		details = append(details, fmt.Sprintf("retry after %v", e.RetryAfter))
	}
	text := "ratelimit: rejected"
	if e.Source != (pipeline.Source{}) {
		text = fmt.Sprintf("ratelimit: %v: rejected", e.Source)
	}
	if len(details) > 0 {
		text += ": " + strings.Join(details, ", ")
	}
	return text
}

// Is tells whether target is [pipeline.ErrRejected].
func (e *RejectedError) Is(target error) bool { return target == pipeline.ErrRejected }

// NotCalled returns true: what the limiter protects was not called. A circuit breaker around the limiter
// does not count the rejection.
func (e *RejectedError) NotCalled() bool { return true }

// RetryDelay returns RetryAfter; ok is false if it is not known. See
// [pipeline.RetryAfter].
func (e *RejectedError) RetryDelay() (d time.Duration, ok bool) {
	if e == nil {
		return 0, false
	}
	return e.RetryAfter, e.RetryAfter > 0
}
