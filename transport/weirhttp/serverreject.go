package weirhttp

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir/limiter"
)

// A Rejection describes a request that is not admitted.
type Rejection struct {
	Policy     string        // the name of the policy
	Lease      limiter.Lease // the limiter's answer; the zero Lease if Err has the cause
	RetryAfter time.Duration // 0: not known
	Status     int           // the status of the answer
	// Err is nil if a limiter rejected the request. Else it is the limiter's error,
	// the pipeline's, or a [*TimeoutError].
	Err error
}

// StatusClientClosedRequest is the status of a request whose client has gone while the request waited. Only the log
// sees it. No RFC defines it, but many servers use it.
const StatusClientClosedRequest = 499

// statusOf returns 429 for a client over its quota, and 503 for a server that is short of capacity. For a limiter that
// all clients share, RetryAfter tells which it is: permits that come back with time are a quota, permits that come back
// when other requests end are capacity.
func (p *policy) statusOf(lease limiter.Lease) int {
	if p.Status != 0 {
		return p.Status
	}
	switch lease.Reason() {
	case limiter.ReasonPartitionLimit, limiter.ReasonClosed, limiter.ReasonUnavailable:
		return http.StatusServiceUnavailable
	}
	if _, known := lease.RetryAfter(); known || p.keyed() {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// statusOfEnded returns 503 for a context that ended with its deadline, and 499 for one that ended with its client.
func statusOfEnded(ctx context.Context) int {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return StatusClientClosedRequest
}

// reject answers with onRejected, and with body if onRejected is nil or writes nothing.
func reject(w http.ResponseWriter, r *http.Request, onRejected, body Body, rejection Rejection) {
	if rejection.Status == StatusClientClosedRequest {
		w.WriteHeader(rejection.Status)
		return
	}
	if onRejected != nil {
		own := newResponse(w)
		onRejected(own.writer(), r, rejection)
		if own.begun() {
			return
		}
	}
	body(w, r, rejection)
}
