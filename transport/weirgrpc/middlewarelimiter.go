package weirgrpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	cause "github.com/weir-go/weir/transport/internal/status"
)

// MiddlewareLimiterOptions are the options of a [MiddlewareLimiter]. The zero value has the defaults.
type MiddlewareLimiterOptions struct {
	// Permits returns the cost of a call. If nil, each call costs 1.
	Permits func(ctx context.Context) int `json:"-" yaml:"-"`
}

// A MiddlewareLimiter is a limiter for the interceptors of the package interceptors/ratelimit of
// github.com/grpc-ecosystem/go-grpc-middleware/v2. Make one with [NewMiddlewareLimiter]. It is safe for concurrent use.
//
//	limit, err := weirgrpc.NewMiddlewareLimiter(bucket, nil)
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(ratelimit.UnaryServerInterceptor(limit)))
//
// It is for programs that already use those interceptors. They turn every error into RESOURCE_EXHAUSTED and keep only its
// text, so a client gets no details of the status, such as a RetryInfo, and cannot tell a limiter that has failed from a
// limit that was exceeded. They leave the trailer alone, in which a MiddlewareLimiter sends grpc-retry-pushback-ms:
// grpc-go's own retry honours it, and so does a [Client].
//
// On a server a call holds the permits of a concurrency limiter until it has ended. On a client the interceptors do not
// say when a call has ended, so a concurrency limiter would limit nothing there.
type MiddlewareLimiter struct {
	limiter limiter.Limiter
	options MiddlewareLimiterOptions
}

// NewMiddlewareLimiter returns a MiddlewareLimiter that asks l. If l has a queue, a call waits in it. If o is nil, the
// defaults apply. If l is nil, the error is a [weir.OptionsError]. The MiddlewareLimiter needs no Close, and does not
// close l.
func NewMiddlewareLimiter(l limiter.Limiter, o *MiddlewareLimiterOptions) (*MiddlewareLimiter, error) {
	if isnil.Value(l) {
		var problems validate.Problems
		problems.Add("l", nil, "must not be nil")
		return nil, problems.Err("weirgrpc")
	}
	return &MiddlewareLimiter{limiter: l, options: *cmp.Or(o, new(MiddlewareLimiterOptions))}, nil
}

// Limit takes the permits of a call, and returns an error if the limiter rejects them or fails. ctx is the context of the
// call. The error of a rejection matches [pipeline.ErrRejected], and [pipeline.RetryAfter] returns its wait. On a server,
// the trailer of the call has the wait, too; it is negative if the call costs more than the limiter can ever grant.
func (m *MiddlewareLimiter) Limit(ctx context.Context) error {
	permits := 1
	if m.options.Permits != nil {
		permits = m.options.Permits(ctx)
	}
	lease, err := m.limiter.Acquire(ctx, permits)
	if err != nil {
		lease.Release() // a limiter of the program can grant permits and return an error
		if permits > 0 && errors.Is(err, limiter.ErrPermitCount) {
			setPushback(ctx, cause.Pushback(0, true)) // more than the limiter can ever grant: grpc-go would retry the call in vain
		}
		return err
	}
	if !lease.Acquired() {
		return reject(ctx, lease)
	}
	if grpc.ServerTransportStreamFromContext(ctx) == nil {
		lease.Release()
		return nil
	}
	context.AfterFunc(ctx, lease.Release) // grpc-go ends the context of a call when its handler has returned
	return nil
}

// reject returns the error of a rejection, and says in the trailer when to come back.
func reject(ctx context.Context, lease limiter.Lease) error {
	rejected := &middlewareRejectedError{reason: lease.Reason()}
	if rejected.wait, rejected.known = lease.RetryAfter(); rejected.known {
		setPushback(ctx, cause.Pushback(rejected.wait, false))
	}
	return rejected
}

// setPushback sends the pushback in the trailer of the call. On a client it does nothing, because there is no trailer.
func setPushback(ctx context.Context, pushback string) {
	_ = grpc.SetTrailer(ctx, metadata.Pairs(pushbackTrailer, pushback))
}

// A middlewareRejectedError is a rejection by a [MiddlewareLimiter]. Its text ends the message of the status.
type middlewareRejectedError struct {
	reason string
	wait   time.Duration
	known  bool
}

// Error returns the reason and the wait, as far as they are known.
func (e *middlewareRejectedError) Error() string {
	text := "rate limit exceeded"
	if e.reason != "" {
		text += ": " + e.reason
	}
	if e.known {
		text += fmt.Sprintf(", retry after %v", e.wait.Round(time.Millisecond))
	}
	return text
}

// RetryAfter returns the wait that the limiter asks for.
func (e *middlewareRejectedError) RetryAfter() (time.Duration, bool) { return e.wait, e.known }

// Is reports whether target is [pipeline.ErrRejected].
func (e *middlewareRejectedError) Is(target error) bool { return target == pipeline.ErrRejected }

// NotCalled returns true: nothing was called.
func (e *middlewareRejectedError) NotCalled() bool { return true }
